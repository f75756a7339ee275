// to[i] = from[i]
#include "lily.h"

template <int T>
kernel void copy(device const uint* from [[buffer(0)]], device uint* to [[buffer(1)]],
                 constant uint& count [[buffer(2)]], uint3 group [[threadgroup_position_in_grid]],
                 uint tid [[thread_index_in_threadgroup]], uint3 groups [[threadgroups_per_grid]]) {
  for (uint i = group.x * T + tid; i < count; i += groups.x * T) to[i] = from[i];
}
ENTRY(copy_words, 256, copy<256>)
