// As much of the Objective-C runtime as metal-cpp needs, on Linux: classes are tables of methods by selector, objects
// count their references, and a message that an object does not know ends the program with its name.
#pragma once

#include <atomic>
#include <string>
#include <unordered_map>
#include <utility>

#include "objc/runtime.h"

namespace soft_metal {

/// Ends the program: the code under test used the runtime or Metal wrongly.
[[noreturn]] void violation(const std::string& what);

struct ClassTable {
  ClassTable* isa = nullptr;  // of the class itself: where its own methods (+alloc) are
  std::string name;
  std::unordered_map<SEL, IMP> methods;
  std::atomic<int> alive{0};
};

/// What every object begins with; messages find the class at the object's address, so it has no virtual functions.
struct Object {
  ClassTable* isa = nullptr;
  std::atomic<int> references{1};
  void (*destroy)(Object*) = nullptr;
};

/// The class of this name, made with retain, release, autorelease and so on when it is first asked for.
ClassTable& class_named(const std::string& name);

void release(Object* object);
Object* autorelease(Object* object);

template <typename T>
T* retain(T* object) {
  if (object != nullptr) ++object->references;
  return object;
}
template <typename T>
T* autoreleased(T* object) {
  return static_cast<T*>(autorelease(object));
}
/// A new object with one reference.
template <typename T>
T* make(const char* class_name) {
  auto* object = new T;
  object->isa = &class_named(class_name);
  object->destroy = [](Object* dead) { delete static_cast<T*>(dead); };
  ++object->isa->alive;
  return object;
}

template <typename Function>
struct MethodPointer;
template <typename Lambda, typename Result, typename... Arguments>
struct MethodPointer<Result (Lambda::*)(Arguments...) const> {
  using type = Result (*)(Arguments...);
};
/// method("SoftBuffer", "length", [](Buffer* self, SEL) { ... }); a name with '+' is a method of the class itself.
template <typename Lambda>
void method(const std::string& class_name, const char* selector, Lambda body) {
  const bool of_class = class_name.front() == '+';
  ClassTable& table = class_named(of_class ? class_name.substr(1) : class_name);
  const auto pointer = static_cast<typename MethodPointer<decltype(&Lambda::operator())>::type>(body);
  (of_class ? *table.isa : table).methods[sel_registerName(selector)] =
      reinterpret_cast<IMP>(reinterpret_cast<void*>(pointer));
}

/// The classes that still have objects, with their number: "2 SoftBuffer"; empty when all is well.
std::string leaks();

struct String : Object {
  std::string text;
};
String* make_string(const std::string& text);  // autoreleased

struct ErrorObject : Object {
  std::string text;
  long code = 0;
};
ErrorObject* make_error(const std::string& text, long code);  // autoreleased

/// NSString, NSError, NSAutoreleasePool. Once, before the first message.
void define_foundation();

}  // namespace soft_metal
