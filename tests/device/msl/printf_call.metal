// expect: printf
#include "kernels/lily.h"
kernel void k(device int* y [[buffer(0)]]) { printf("%d", y[0]); }
