// The experts' second half for one row, with everything that follows it:
//
//   x += sum over slots of share[slot] * act[slot] down_proj[slot]^T + sigmoid(logits[experts]) * shared
//   down_proj_shared^T
//
// A threadgroup makes T::kRows rows of x. Its simdgroups share out the pairs of a slot (the shared expert's is the
// last) and a slice of its columns. Shares go into the activations, so all pairs simply add up.
#pragma once

#include "project_step.h"
#include "top_experts.h"

struct ExpertsDownStep {
  uint experts;
  uint count;           // experts per token
  uint rows;            // hidden
  uint columns;         // intermediate
  uint shared_columns;  // the shared expert's
};

template <class T, int SIMDGROUPS>
struct ExpertsDownMemory {
  typename T::Stage stage[SIMDGROUPS];
  float part[SIMDGROUPS][T::kRows];
  TopExperts<256, 16> top;
};

template <class T, int COLUMNS, int SIMDGROUPS>
kernel void experts_down_step(device const uint* codes [[buffer(0)]], device const bfloat* scales [[buffer(1)]],
                              device const bfloat* biases [[buffer(2)]], device const uint* shared_codes [[buffer(3)]],
                              device const bfloat* shared_scales [[buffer(4)]],
                              device const bfloat* shared_biases [[buffer(5)]],
                              device const float* logits [[buffer(6)]], device const float* act [[buffer(7)]],
                              device const float* shared [[buffer(8)]], device float* x [[buffer(9)]],
                              constant ExpertsDownStep& p [[buffer(10)]], uint3 group [[threadgroup_position_in_grid]],
                              uint tid [[thread_index_in_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]],
                              uint lane [[thread_index_in_simdgroup]]) {
  using Memory = ExpertsDownMemory<T, SIMDGROUPS>;
  STEP_SHARED(Memory, mem);
  constexpr bool RAGGED = COLUMNS == 0;
  const uint columns = COLUMNS > 0 ? COLUMNS : p.columns, shared_columns = COLUMNS > 0 ? COLUMNS : p.shared_columns;
  const uint first_row = group.x * T::kRows;
  const uint slices = (columns + T::kSlice - 1) / T::kSlice;
  const uint pairs = p.count * slices + (shared_columns + T::kSlice - 1) / T::kSlice;
  if (sg == 0) {
    choose_experts(logits, p.experts, p.count, mem.top, lane);
    share_experts(p.count, mem.top, lane);
  }
  const float shared_share = sigmoid(logits[p.experts]);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  T tile;
  tile.zero();
  const bool has_row = tid < T::kRows && first_row + tid < p.rows;
  float before = 0.f;
  bool waited = false;
  let_next_start();
  for (uint pair = sg; pair < pairs; pair += SIMDGROUPS) {
    const bool is_shared = pair >= p.count * slices;
    const uint slot = is_shared ? 0 : pair / slices, slice = pair - (is_shared ? p.count : slot) * slices;
    const uint row = is_shared ? 0 : mem.top.id[slot] * p.rows, width = is_shared ? shared_columns : columns;
    const QuantizedRows w = quantized_rows(is_shared ? shared_codes : codes, is_shared ? shared_scales : scales,
                                           is_shared ? shared_biases : biases, row + p.rows, width);
    tile.load(w, row + first_row, slice, mem.stage[sg], lane);
    if (!waited) wait_for_inputs();
    if (!waited && has_row) before = x[first_row + tid];
    waited = true;
    float v[T::kValues];
    read_slice<T::kValues, RAGGED>(is_shared ? shared : act + slot * columns, slice * T::kSlice + lane * T::kValues,
                                   width, v);
    const float share = is_shared ? shared_share : mem.top.share[slot];
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < T::kValues; ++i) v[i] *= share;
    tile.prepare(v, mem.stage[sg], lane);
    tile.multiply(mem.stage[sg], lane);
  }
  if (!waited) wait_for_inputs();
  if (!waited && has_row) before = x[first_row + tid];
  tile.finish(mem.part[sg], lane);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (has_row) {
    float total = 0.f;
    METAL_PRAGMA_UNROLL
    for (int s = 0; s < SIMDGROUPS; ++s) total += mem.part[s][tid];
    x[first_row + tid] = before + total;
  }
}
