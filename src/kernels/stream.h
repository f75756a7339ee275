// Loads of weights: read once, long before they are used.
//
// On CUDA they stay where they are written in the program (before wait_for_inputs) and pass the first-level cache by;
// elsewhere they are plain loads.
#pragma once

#include "lily.h"

#if defined(__CUDACC__)

METAL_FUNC vec<uint, 4> stream(const vec<uint, 4>* p) {
  vec<uint, 4> r;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "l"(p));
  return r;
}
METAL_FUNC vec<uint, 2> stream(const vec<uint, 2>* p) {
  vec<uint, 2> r;
  asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "l"(p));
  return r;
}
METAL_FUNC uint stream(const uint* p) {
  uint r;
  asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(r) : "l"(p));
  return r;
}
METAL_FUNC vec<float, 4> stream(const vec<float, 4>* p) {
  vec<float, 4> r;
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(r[0]), "=f"(r[1]), "=f"(r[2]), "=f"(r[3]) : "l"(p));
  return r;
}

#else

template <class T>
METAL_FUNC T stream(device const T* p) {
  return *p;
}

#endif
