// expect: new
#include "kernels/lily.h"
kernel void k(device int* y [[buffer(0)]]) {
  int* p = new int;
  y[0] = *p;
}
