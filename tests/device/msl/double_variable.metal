// expect: double
#include "kernels/lily.h"
kernel void k(device float* y [[buffer(0)]]) {
  double d = y[0];
  y[0] = float(d);
}
