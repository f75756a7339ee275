// expect: buffers are numbered in order
#include "kernels/lily.h"
kernel void k(uint t [[thread_index_in_threadgroup]], device uint* y [[buffer(0)]]) { y[t] = t; }
