// expect: exceptions
#include "kernels/lily.h"
kernel void k(device int* y [[buffer(0)]]) { throw 1; }
