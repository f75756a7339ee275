// expect: no matching function
#include "kernels/lily.h"
kernel void k(device ulong* y [[buffer(0)]]) { atomic_fetch_add_explicit(y, 1ul, memory_order_relaxed); }
