// expect: static
#include "kernels/lily.h"
kernel void k(device int* y [[buffer(0)]]) {
  static int n;
  y[0] = ++n;
}
