// expect: local
#include "kernels/lily.h"
METAL_FUNC int f() {
  threadgroup int m[4];
  return m[0];
}
kernel void k(device int* y [[buffer(0)]]) { y[0] = f(); }
