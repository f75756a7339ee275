// What clang's ThreadSanitizer instrumentation calls and gcc's runtime lacks. (clang 19's own runtime misses most races
// between fibers: it was measured on the same objects.)
#include <cstring>

extern "C" {
void* __tsan_memcpy(void* to, const void* from, std::size_t size) {
  return std::memcpy(to, from, size);
}
void* __tsan_memset(void* to, int value, std::size_t size) {
  return std::memset(to, value, size);
}
void* __tsan_memmove(void* to, const void* from, std::size_t size) {
  return std::memmove(to, from, size);
}
}
