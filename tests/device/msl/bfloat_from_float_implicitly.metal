// expect: implicit conversion
#include "kernels/lily.h"
kernel void k(device bfloat* y [[buffer(0)]]) {
  float f = 1.f;
  y[0] = f;
}
