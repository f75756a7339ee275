// Puts the splits of attention_step together and applies the output gate:
//
//   o = sum_s 2^(m_s - max m) o_s / sum_s 2^(m_s - max m) l_s;   out = o * sigmoid(gate)
//
// A threadgroup makes 64 dimensions of one head; its simdgroups share out the splits, at most kMostSplits.
#include "numeric.h"

struct AttentionMerge {
  uint splits;
};

constant constexpr uint kMostSplits = 256;

template <int SIMDGROUPS>
struct AttentionMergeMemory {
  float weight[kMostSplits];
  float o[SIMDGROUPS][64];
  float total;
};

template <int D, int SIMDGROUPS>
kernel void attention_merge(device const float* part_o [[buffer(0)]], device const float* part_ml [[buffer(1)]],
                            device const float* projected [[buffer(2)]], device float* out [[buffer(3)]],
                            constant AttentionMerge& p [[buffer(4)]], uint3 group [[threadgroup_position_in_grid]],
                            uint tid [[thread_index_in_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]],
                            uint lane [[thread_index_in_simdgroup]]) {
  using Memory = AttentionMergeMemory<SIMDGROUPS>;
  SHARED(Memory, mem);
  constexpr uint AHEAD = 8;
  const uint head = group.y, first = group.x * 64;
  device const vec<float, 2>* ml = (device const vec<float, 2>*)part_ml + head * p.splits;
  device const vec<float, 2>* o = (device const vec<float, 2>*)(part_o + ulong(head) * p.splits * D + first) + lane;
  let_next_start();
  wait_for_inputs();
  const float gate = tid < 64 ? projected[head * 2 * D + D + first + tid] : 0.f;
  vec<float, 2> two[AHEAD];  // asked for before the weights are known
  METAL_PRAGMA_UNROLL
  for (uint i = 0; i < AHEAD; ++i) two[i] = o[min(sg + i * SIMDGROUPS, p.splits - 1) * (D / 2)];
  if (sg == 0) {
    float m = -1e30f, l = 0.f;
    for (uint s = lane; s < p.splits; s += 32) m = max(m, ml[s][0]);
    m = simd_max(m);
    for (uint s = lane; s < p.splits; s += 32) {
      const float weight = exp2(ml[s][0] - m);
      mem.weight[s] = weight;
      l += weight * ml[s][1];
    }
    l = simd_sum(l);
    if (lane == 0) mem.total = l;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum[2] = {0.f, 0.f};
  METAL_PRAGMA_UNROLL
  for (uint i = 0; i < AHEAD; ++i) {
    const uint s = sg + i * SIMDGROUPS;
    const float weight = s < p.splits ? mem.weight[s] : 0.f;
    sum[0] += weight * two[i][0];
    sum[1] += weight * two[i][1];
  }
  for (uint s = sg + AHEAD * SIMDGROUPS; s < p.splits; s += SIMDGROUPS) {
    const vec<float, 2> more = o[s * (D / 2)];
    sum[0] += mem.weight[s] * more[0];
    sum[1] += mem.weight[s] * more[1];
  }
  mem.o[sg][2 * lane] = sum[0];
  mem.o[sg][2 * lane + 1] = sum[1];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (tid < 64) {
    float all = 0.f;
    METAL_PRAGMA_UNROLL
    for (int s = 0; s < SIMDGROUPS; ++s) all += mem.o[s][tid];
    out[head * D + first + tid] = all / mem.total * sigmoid(gate);
  }
}
ENTRY_PREFETCH(attention_merge_256, 256, attention_merge<256, 8>)
ENTRY_PREFETCH(attention_merge_128, 256, attention_merge<128, 8>)
