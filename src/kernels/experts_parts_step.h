// The experts of one row in pieces, each a launch of its own, where experts_up_step and experts_down_step make one of
// them:
//
//   experts_matrix_step   out[slot] = rms_norm(x, norm) W[expert of slot]^T, once for the gate, once for the up matrix
//   experts_slot_step     out[slot] = act[slot] down_proj[expert of slot]^T; the slot `count` is the shared expert's
//
// experts_parts_step.metal has what follows each. A threadgroup makes T::kRows values of one slot.
#pragma once

#include "experts_down_step.h"
#include "experts_up_step.h"

template <class T, int COLUMNS, int SIMDGROUPS>
kernel void experts_matrix_step(device const uint* codes [[buffer(0)]], device const bfloat* scales [[buffer(1)]],
                                device const bfloat* biases [[buffer(2)]], device const float* x [[buffer(3)]],
                                device const float* norm [[buffer(4)]], device const float* logits [[buffer(5)]],
                                device float* out [[buffer(6)]], constant ExpertsUpStep& p [[buffer(7)]],
                                uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                                uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  using Memory = ExpertsUpMemory<T, SIMDGROUPS>;
  STEP_SHARED(Memory, mem);
  const uint columns = COLUMNS > 0 ? COLUMNS : p.columns, first_row = group.x * T::kRows;
  if (sg == 0) choose_experts(logits, p.experts, p.count, mem.top, lane);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint expert_row = mem.top.id[group.y] * p.rows;
  const QuantizedRows w = quantized_rows(codes, scales, biases, expert_row + p.rows, columns);
  normed_share<T, COLUMNS == 0>(w, expert_row + first_row, x, norm, sg, SIMDGROUPS, mem.stage[sg], mem.part[sg],
                                &mem.squares[sg], lane);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (tid < T::kRows && first_row + tid < p.rows) {
    float total = 0.f, square = 0.f;
    for (uint s = 0; s < SIMDGROUPS; ++s) {
      total += mem.part[s][tid];
      square += mem.squares[s];
    }
    out[group.y * p.rows + first_row + tid] = total * rsqrt(square / float(columns) + p.eps);
  }
}

template <class T, int COLUMNS, int SIMDGROUPS>
kernel void experts_slot_step(device const uint* codes [[buffer(0)]], device const bfloat* scales [[buffer(1)]],
                              device const bfloat* biases [[buffer(2)]], device const uint* shared_codes [[buffer(3)]],
                              device const bfloat* shared_scales [[buffer(4)]],
                              device const bfloat* shared_biases [[buffer(5)]],
                              device const float* logits [[buffer(6)]], device const float* act [[buffer(7)]],
                              device const float* shared [[buffer(8)]], device float* out [[buffer(9)]],
                              constant ExpertsDownStep& p [[buffer(10)]], uint3 group [[threadgroup_position_in_grid]],
                              uint tid [[thread_index_in_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]],
                              uint lane [[thread_index_in_simdgroup]]) {
  using Memory = ExpertsDownMemory<T, SIMDGROUPS>;
  STEP_SHARED(Memory, mem);
  const uint slot = group.y, first_row = group.x * T::kRows;
  const bool is_shared = slot == p.count;
  if (sg == 0) choose_experts(logits, p.experts, p.count, mem.top, lane);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint columns = COLUMNS > 0 ? COLUMNS : is_shared ? p.shared_columns : p.columns;
  const uint expert_row = is_shared ? 0 : mem.top.id[is_shared ? 0 : slot] * p.rows;
  const QuantizedRows w = quantized_rows(is_shared ? shared_codes : codes, is_shared ? shared_scales : scales,
                                         is_shared ? shared_biases : biases, expert_row + p.rows, columns);
  device const float* in = is_shared ? shared : act + slot * columns;
  T tile;
  tile.zero();
  for (uint slice = sg; slice * T::kSlice < columns; slice += SIMDGROUPS) {
    float v[T::kValues];
    tile.load(w, expert_row + first_row, slice, mem.stage[sg], lane);
    read_slice<T::kValues, COLUMNS == 0>(in, slice * T::kSlice + lane * T::kValues, columns, v);
    tile.prepare(v, mem.stage[sg], lane);
    tile.multiply(mem.stage[sg], lane);
  }
  tile.finish(mem.part[sg], lane);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (tid < T::kRows && first_row + tid < p.rows) {
    float total = 0.f;
    for (uint s = 0; s < SIMDGROUPS; ++s) total += mem.part[s][tid];
    out[slot * p.rows + first_row + tid] = total;
  }
}
