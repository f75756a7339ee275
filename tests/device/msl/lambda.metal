// expect: lambda
#include "kernels/lily.h"
kernel void k(device int* y [[buffer(0)]]) {
  auto f = [](int x) { return x + 1; };
  y[0] = f(y[0]);
}
