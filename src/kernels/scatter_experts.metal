// Gives each (row, slot) pair its position among the rows of its expert. In which order an expert's rows stand is left
// to chance; no result depends on it.
#include "experts_plan.h"

template <int THREADS>
kernel void scatter_experts(device const uint* ids [[buffer(0)]], device atomic_uint* next_position [[buffer(1)]],
                            device uint* pair_at [[buffer(2)]], device uint* position_of [[buffer(3)]],
                            constant ExpertRows& p [[buffer(4)]], uint3 group [[threadgroup_position_in_grid]],
                            uint tid [[thread_index_in_threadgroup]]) {
  const uint pair = group.x * THREADS + tid;
  if (pair >= p.rows * p.count) return;
  const uint position = atomic_fetch_add_explicit(&next_position[ids[pair]], 1u, memory_order_relaxed);
  pair_at[position] = pair;
  position_of[pair] = position;
}
ENTRY(scatter_experts_256, 256, scatter_experts<256>)
