// expect: does not return void
#include "kernels/lily.h"
kernel int k(device int* y [[buffer(0)]]) { return y[0]; }
