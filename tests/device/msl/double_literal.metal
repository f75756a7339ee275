// expect: double
#include "kernels/lily.h"
kernel void k(device float* y [[buffer(0)]]) { y[0] = float(y[0] * 2.0); }
