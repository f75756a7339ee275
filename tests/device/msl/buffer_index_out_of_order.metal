// expect: buffers are numbered in order
#include "kernels/lily.h"
kernel void k(device int* y [[buffer(1)]], device int* z [[buffer(0)]]) { y[0] = z[0]; }
