// expect: thread
#include "kernels/lily.h"
thread_local int n;
kernel void k(device int* y [[buffer(0)]]) { y[0] = n; }
