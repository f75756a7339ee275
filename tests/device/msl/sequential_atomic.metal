// expect: memory_order_seq_cst
#include "kernels/lily.h"
kernel void k(device atomic_uint* y [[buffer(0)]]) { atomic_fetch_add_explicit(y, 1u, memory_order_seq_cst); }
