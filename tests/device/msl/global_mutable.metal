// expect: global
#include "kernels/lily.h"
int n;
kernel void k(device int* y [[buffer(0)]]) { y[0] = ++n; }
