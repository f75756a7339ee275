// expect: has no attribute
#include "kernels/lily.h"
kernel void k(device int* y) { y[0] = 1; }
