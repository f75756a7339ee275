#include "objc_runtime.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <vector>

namespace soft_metal {
namespace {

struct Pool : Object {
  std::vector<Object*> held;
};
thread_local std::vector<Pool*> pools;

std::map<std::string, ClassTable>& classes() {
  static auto& all = *new std::map<std::string, ClassTable>;  // outlives static destructors that release objects
  return all;
}
std::recursive_mutex& runtime_mutex() {
  static auto& mutex = *new std::recursive_mutex;
  return mutex;
}

void define_object(const std::string& name) {
  method(name, "retain", [](Object* o, SEL) { return retain(o); });
  method(name, "release", [](Object* o, SEL) { release(o); });
  method(name, "autorelease", [](Object* o, SEL) { return autoreleased(o); });
  method(name, "retainCount", [](Object* o, SEL) { return static_cast<unsigned long>(o->references); });
  method(name, "init", [](Object* o, SEL) { return o; });
  method(name, "respondsToSelector:", [](Object* o, SEL, SEL s) { return o->isa->methods.count(s) != 0; });
  method(name, "methodSignatureForSelector:", [](Object*, SEL, SEL) { return static_cast<void*>(nullptr); });
}

void drain(Pool* pool) {
  if (pools.empty() || pools.back() != pool) violation("autorelease pools are drained out of order");
  pools.pop_back();
  for (Object* object : pool->held) release(object);
  release(pool);
}

}  // namespace

void violation(const std::string& what) {
  std::fprintf(stderr, "soft Metal: %s\n", what.c_str());
  std::fflush(nullptr);
  _exit(4);
}

ClassTable& class_named(const std::string& name) {
  const std::lock_guard lock(runtime_mutex());
  const auto [found, is_new] = classes().try_emplace(name);
  if (is_new) {
    found->second.name = name;
    ClassTable& own = classes()["+" + name];
    own.name = "+" + name;
    found->second.isa = &own;
    define_object(name);
  }
  return found->second;
}

void release(Object* object) {
  const int left = --object->references;
  if (left < 0) violation(object->isa->name + " released once too often");
  if (left > 0) return;
  --object->isa->alive;
  object->destroy(object);
}

Object* autorelease(Object* object) {
  if (pools.empty()) violation(object->isa->name + " autoreleased with no pool in place: it leaks");
  pools.back()->held.push_back(object);
  return object;
}

std::string leaks() {
  const std::lock_guard lock(runtime_mutex());
  std::string found;
  for (const auto& [name, table] : classes()) {
    if (table.alive > 0) found += (found.empty() ? "" : ", ") + std::to_string(table.alive) + " " + name;
  }
  return found;
}

String* make_string(const std::string& text) {
  auto* string = make<String>("NSString");
  string->text = text;
  return autoreleased(string);
}

ErrorObject* make_error(const std::string& text, long code) {
  auto* error = make<ErrorObject>("NSError");
  error->text = text;
  error->code = code;
  return autoreleased(error);
}

void define_foundation() {
  method("+NSAutoreleasePool", "alloc", [](void*, SEL) {
    auto* pool = make<Pool>("NSAutoreleasePool");
    pools.push_back(pool);
    return pool;
  });
  method("NSAutoreleasePool", "release", [](Pool* pool, SEL) { drain(pool); });
  method("NSAutoreleasePool", "drain", [](Pool* pool, SEL) { drain(pool); });
  method("+NSString",
         "stringWithCString:encoding:", [](void*, SEL, const char* text, unsigned long) { return make_string(text); });
  method("NSString", "UTF8String", [](String* s, SEL) { return s->text.c_str(); });
  method("NSError", "localizedDescription", [](ErrorObject* e, SEL) { return make_string(e->text); });
  method("NSError", "code", [](ErrorObject* e, SEL) { return e->code; });
}

/// The method for a message; nil answers zero to everything.
extern "C" IMP soft_metal_lookup(Object* object, SEL selector) {
  constexpr auto nil = [] { return 0UL; };
  if (object == nullptr) return reinterpret_cast<IMP>(reinterpret_cast<void*>(+nil));
  const auto found = object->isa->methods.find(selector);
  if (found == object->isa->methods.end()) {
    violation("-[" + object->isa->name + " " + sel_getName(selector) + "] is not there");
  }
  return found->second;
}

}  // namespace soft_metal

using soft_metal::runtime_mutex;

extern "C" {

SEL sel_registerName(const char* name) {
  const std::lock_guard lock(runtime_mutex());
  static auto& names = *new std::set<std::string>;
  return reinterpret_cast<SEL>(const_cast<char*>(names.insert(name).first->c_str()));
}
const char* sel_getName(SEL selector) {
  return reinterpret_cast<const char*>(selector);
}
void* objc_getProtocol(const char*) {
  return nullptr;
}

// ---- the blocks runtime, for blocks that capture by value or by __block reference ----

struct BlockDescriptor {
  unsigned long reserved, size;
  void (*copy)(void*, void*);
  void (*dispose)(void*);
};
struct Block {
  void* isa;
  int flags, reserved;
  void* invoke;
  BlockDescriptor* descriptor;
};
struct BlockReference {  // a __block variable
  void* isa;
  BlockReference* forwarding;
  int flags, size;
  void (*copy)(BlockReference*, BlockReference*);
  void (*dispose)(BlockReference*);
};
constexpr int kHasHelpers = 1 << 25;
constexpr int kIsGlobal = 1 << 28;
constexpr int kOnHeap = 1 << 24;
constexpr int kIsReference = 8;
constexpr int kReferenceCount = 0xfffe;

void* _NSConcreteStackBlock[32];
void* _NSConcreteGlobalBlock[32];

void* _Block_copy(const void* argument) {
  const auto* block = static_cast<const Block*>(argument);
  if ((block->flags & kIsGlobal) != 0) return const_cast<Block*>(block);
  auto* copy = static_cast<Block*>(std::malloc(block->descriptor->size));
  std::memcpy(copy, block, block->descriptor->size);
  if ((block->flags & kHasHelpers) != 0) block->descriptor->copy(copy, const_cast<Block*>(block));
  return copy;
}

void _Block_release(const void* argument) {
  auto* block = static_cast<Block*>(const_cast<void*>(argument));
  if ((block->flags & kIsGlobal) != 0) return;
  if ((block->flags & kHasHelpers) != 0) block->descriptor->dispose(block);
  std::free(block);
}

void _Block_object_assign(void* to, const void* from, int flags) {
  if ((flags & kIsReference) == 0) {
    *static_cast<const void**>(to) = from;
    return;
  }
  auto* reference = static_cast<BlockReference*>(const_cast<void*>(from))->forwarding;
  if ((reference->flags & kOnHeap) != 0) {
    reference->flags += 2;
  } else {
    auto* copy = static_cast<BlockReference*>(std::malloc(static_cast<std::size_t>(reference->size)));
    std::memcpy(copy, reference, static_cast<std::size_t>(reference->size));
    copy->flags |= kOnHeap | 2 << 1;  // one reference for the stack's forwarding, one for the block
    copy->forwarding = copy;
    if ((reference->flags & kHasHelpers) != 0) reference->copy(copy, reference);
    reference->forwarding = copy;
    reference = copy;
  }
  *static_cast<void**>(to) = reference;
}

void _Block_object_dispose(const void* argument, int flags) {
  if ((flags & kIsReference) == 0) return;
  auto* reference = static_cast<BlockReference*>(const_cast<void*>(argument))->forwarding;
  if ((reference->flags & kOnHeap) == 0) return;
  reference->flags -= 2;
  if ((reference->flags & kReferenceCount) != 0) return;
  if ((reference->flags & kHasHelpers) != 0) reference->dispose(reference);
  std::free(reference);
}
}

// objc_msgSend: finds the method, then jumps to it with every argument where the caller put it.
#if !defined(__x86_64__)
#error "the software Metal sends messages on x86-64 only"
#endif
#define LILY_SEND(name, self, selector)                                                                         \
  asm(".text\n.globl " name "\n.type " name ",@function\n" name                                                 \
      ":\n"                                                                                                     \
      "push %rbp\n mov %rsp, %rbp\n sub $192, %rsp\n"                                                           \
      "mov %rdi, (%rsp)\n mov %rsi, 8(%rsp)\n mov %rdx, 16(%rsp)\n"                                             \
      "mov %rcx, 24(%rsp)\n mov %r8, 32(%rsp)\n mov %r9, 40(%rsp)\n"                                            \
      "movups %xmm0, 48(%rsp)\n movups %xmm1, 64(%rsp)\n movups %xmm2, 80(%rsp)\n movups %xmm3, 96(%rsp)\n"     \
      "movups %xmm4, 112(%rsp)\n movups %xmm5, 128(%rsp)\n movups %xmm6, 144(%rsp)\n movups %xmm7, 160(%rsp)\n" \
      "mov " self ", %rax\n mov " selector                                                                      \
      ", %rsi\n mov %rax, %rdi\n call soft_metal_lookup\n mov %rax, %r11\n"                                     \
      "mov (%rsp), %rdi\n mov 8(%rsp), %rsi\n mov 16(%rsp), %rdx\n"                                             \
      "mov 24(%rsp), %rcx\n mov 32(%rsp), %r8\n mov 40(%rsp), %r9\n"                                            \
      "movups 48(%rsp), %xmm0\n movups 64(%rsp), %xmm1\n movups 80(%rsp), %xmm2\n movups 96(%rsp), %xmm3\n"     \
      "movups 112(%rsp), %xmm4\n movups 128(%rsp), %xmm5\n movups 144(%rsp), %xmm6\n movups 160(%rsp), %xmm7\n" \
      "leave\n jmp *%r11\n")
LILY_SEND("objc_msgSend", "%rdi", "%rsi");
LILY_SEND("objc_msgSend_fpret", "%rdi", "%rsi");
LILY_SEND("objc_msgSend_stret", "%rsi", "%rdx");
