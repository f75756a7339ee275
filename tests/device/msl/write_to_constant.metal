// expect: constant
#include "kernels/lily.h"
kernel void k(constant uint& n [[buffer(0)]]) { n = 1; }
