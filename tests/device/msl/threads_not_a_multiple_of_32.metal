// expect: a multiple of 32
#include "kernels/lily.h"
template <int N>
kernel void k(device int* y [[buffer(0)]]) { y[0] = N; }
ENTRY(one, 48, k<1>)
