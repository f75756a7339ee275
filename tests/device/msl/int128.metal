// expect: __int128
#include "kernels/lily.h"
kernel void k(device long* y [[buffer(0)]]) {
  __int128 d = y[0];
  y[0] = long(d);
}
