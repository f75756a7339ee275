// expect: buffer 0 is given twice
#include "kernels/lily.h"
kernel void k(device int* y [[buffer(0)]], device int* z [[buffer(0)]]) { y[0] = z[0]; }
