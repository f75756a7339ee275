// x[i] = 0
#include "lily.h"

template <int T>
kernel void zero(device uint* x [[buffer(0)]], constant uint& count [[buffer(1)]],
                 uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                 uint3 groups [[threadgroups_per_grid]]) {
  for (uint i = group.x * T + tid; i < count; i += groups.x * T) x[i] = 0;
}
ENTRY(zero_words, 256, zero<256>)
