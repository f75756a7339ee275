// expect: SHARED stands in the kernel itself
#include "kernels/lily.h"
METAL_FUNC int f() {
  SHARED(int, m);
  return m;
}
kernel void k(device int* y [[buffer(0)]]) { y[0] = f(); }
