// expect: does not refer to a function template
#include "kernels/lily.h"
kernel void k(device int* y [[buffer(0)]]) { y[0] = 1; }
ENTRY(one, 32, k)
