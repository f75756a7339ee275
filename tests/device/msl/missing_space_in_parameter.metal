// expect: needs an address space
#include "kernels/lily.h"
METAL_FUNC float f(const float* p) { return *p; }
kernel void k(device float* y [[buffer(0)]]) { y[0] = f(y); }
