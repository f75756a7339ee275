// expect: no goto
#include "kernels/lily.h"
kernel void k(device int* y [[buffer(0)]]) {
  goto a;
a:
  y[0] = 1;
}
