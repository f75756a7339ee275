// expect: declaration specifier
#include "kernels/lily.h"
kernel void k(device int* y [[buffer(0)]]) {
  int half = 1;
  y[0] = half;
}
