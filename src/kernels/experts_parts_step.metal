// The experts of one row in pieces (experts_parts_step.h), with the two elementwise ones:
//
//   activate_step         gate[i] = silu(gate[i]) * up[i]
//   experts_combine_step  x += sum over slots of share[slot] * out[slot] + sigmoid(logits[experts]) * out[count]
#include "experts_parts_step.h"

using PartTile = LaneTile<4, false>;
using RaggedPartTile = LaneTile<4, true>;

ENTRY(experts_matrix_step_q4_2048, 256, experts_matrix_step<PartTile, 2048, 8>)
ENTRY(experts_matrix_step_q4, 256, experts_matrix_step<RaggedPartTile, 0, 8>)
ENTRY(experts_slot_step_q4_512, 64, experts_slot_step<PartTile, 512, 2>)
ENTRY(experts_slot_step_q4, 64, experts_slot_step<RaggedPartTile, 0, 2>)

template <int THREADS>
kernel void activate_step(device float* gate [[buffer(0)]], device const float* up [[buffer(1)]],
                          constant uint& count [[buffer(2)]], uint3 group [[threadgroup_position_in_grid]],
                          uint tid [[thread_index_in_threadgroup]]) {
  const uint i = group.x * THREADS + tid;
  if (i < count) gate[i] = silu(gate[i]) * up[i];
}
ENTRY(activate_step_256, 256, activate_step<256>)

struct CombineStepMemory {
  TopExperts<256, 16> top;
};

template <int THREADS>
kernel void experts_combine_step(device const float* logits [[buffer(0)]], device const float* out [[buffer(1)]],
                                 device float* x [[buffer(2)]], constant ExpertsDownStep& p [[buffer(3)]],
                                 uint3 group [[threadgroup_position_in_grid]],
                                 uint tid [[thread_index_in_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]],
                                 uint lane [[thread_index_in_simdgroup]]) {
  SHARED(CombineStepMemory, mem);
  const uint row = group.x * THREADS + tid;
  if (sg == 0) {
    choose_experts(logits, p.experts, p.count, mem.top, lane);
    share_experts(p.count, mem.top, lane);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (row >= p.rows) return;
  float sum = sigmoid(logits[p.experts]) * out[p.count * p.rows + row];
  for (uint slot = 0; slot < p.count; ++slot) sum += mem.top.share[slot] * out[slot * p.rows + row];
  x[row] += sum;
}
ENTRY(experts_combine_step_256, 256, experts_combine_step<256>)
