// expect: pointers to functions
#include "kernels/lily.h"
METAL_FUNC int g(int x) { return x; }
kernel void k(device int* y [[buffer(0)]]) {
  int (*f)(int) = g;
  y[0] = f(1);
}
