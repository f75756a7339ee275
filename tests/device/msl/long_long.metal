// expect: long long
#include "kernels/lily.h"
kernel void k(device long* y [[buffer(0)]]) {
  long long d = y[0];
  y[0] = d;
}
