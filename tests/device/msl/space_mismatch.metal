// expect: no matching function
#include "kernels/lily.h"
METAL_FUNC float f(device const float* p) { return *p; }
kernel void k(device float* y [[buffer(0)]]) {
  SHARED(float, m);
  y[0] = f(&m);
}
