// What metal-cpp wants of macOS's header of this name, for Linux.
#pragma once
#include <cstddef>
#include <cstdint>
typedef struct objc_selector* SEL;
typedef struct objc_object {
  void* isa;
} * id;
typedef struct objc_class* Class;
typedef signed char BOOL;
typedef struct objc_method* Method;
typedef id (*IMP)(id, SEL, ...);
extern "C" {
SEL sel_registerName(const char*);
Class objc_lookUpClass(const char*);
void* objc_getProtocol(const char*);
Class object_getClass(id);
const char* sel_getName(SEL);
Class objc_allocateClassPair(Class, const char*, size_t);
void objc_registerClassPair(Class);
BOOL class_addMethod(Class, SEL, IMP, const char*);
}
