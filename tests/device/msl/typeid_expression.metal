// expect: typeid
#include "kernels/lily.h"
kernel void k(device int* y [[buffer(0)]]) { y[0] = &typeid(int) != nullptr; }
