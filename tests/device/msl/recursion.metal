// expect: no recursion
#include "kernels/lily.h"
METAL_FUNC int f(int n) { return n < 2 ? 1 : n * f(n - 1); }
kernel void k(device int* y [[buffer(0)]]) { y[0] = f(y[1]); }
