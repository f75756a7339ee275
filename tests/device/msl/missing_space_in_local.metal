// expect: needs an address space
#include "kernels/lily.h"
kernel void k(device float* y [[buffer(0)]]) {
  float a[2] = {1.f, 2.f};
  float* p = a;
  y[0] = p[1];
}
