// Puts the splits of attention_step together and applies the output gate:
//
//   o = sum_s 2^(m_s - max m) o_s / sum_s 2^(m_s - max m) l_s;   out = o * sigmoid(gate)
//
// A threadgroup makes 64 dimensions of one head; its simdgroups share out the splits.
#include "numeric.h"

struct AttentionMerge {
  uint splits;
};

template <int SIMDGROUPS>
struct AttentionMergeMemory {
  float o[SIMDGROUPS][64];
  float l[SIMDGROUPS];
};

template <int D, int SIMDGROUPS>
kernel void attention_merge(device const float* part_o [[buffer(0)]], device const float* part_ml [[buffer(1)]],
                            device const float* projected [[buffer(2)]], device float* out [[buffer(3)]],
                            constant AttentionMerge& p [[buffer(4)]], uint3 group [[threadgroup_position_in_grid]],
                            uint tid [[thread_index_in_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]],
                            uint lane [[thread_index_in_simdgroup]]) {
  using Memory = AttentionMergeMemory<SIMDGROUPS>;
  SHARED(Memory, mem);
  const uint head = group.y, first = group.x * 64, d = first + tid;
  float gate = 0.f;
  wait_for_inputs();
  if (tid < 64) gate = projected[head * 2 * D + D + d];
  device const float* ml = part_ml + head * p.splits * 2;
  float m = -1e30f;
  for (uint s = lane; s < p.splits; s += 32) m = max(m, ml[2 * s]);
  m = simd_max(m);
  float o[2] = {0.f, 0.f}, l = 0.f;
  for (uint s = sg; s < p.splits; s += SIMDGROUPS) {
    const float weight = exp2(ml[2 * s] - m);
    const vec<float, 2> two = ((device const vec<float, 2>*)(part_o + (ulong(head) * p.splits + s) * D + first))[lane];
    o[0] += weight * two[0];
    o[1] += weight * two[1];
    l += weight * ml[2 * s + 1];
  }
  mem.o[sg][2 * lane] = o[0];
  mem.o[sg][2 * lane + 1] = o[1];
  if (lane == 0) mem.l[sg] = l;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (tid < 64) {
    float sum = 0.f, total = 0.f;
    for (int s = 0; s < SIMDGROUPS; ++s) {
      sum += mem.o[s][tid];
      total += mem.l[s];
    }
    out[head * D + d] = sum / total * sigmoid(gate);
  }
}
ENTRY_PREFETCH(attention_merge_256, 256, attention_merge<256, 8>)
ENTRY_PREFETCH(attention_merge_128, 256, attention_merge<128, 8>)
