// The chosen experts' first half for one row x: act[slot] = silu(n gate^T) * (n up^T), n = rms_norm(x, norm).
//
// A threadgroup makes T::kRows values of one slot's act: half of its simdgroups the gate, half the up rows. The experts
// are chosen here, by every threadgroup for itself, from the router's logits.
#pragma once

#include "route_step.h"
#include "top_experts.h"

struct ExpertsUpStep {
  uint experts;
  uint count;    // experts per token
  uint columns;  // hidden
  uint rows;     // intermediate
  float eps;
};

template <class T, int SIMDGROUPS>
struct ExpertsUpMemory {
  typename T::Stage stage[SIMDGROUPS];
  float part[SIMDGROUPS][T::kRows];
  float squares[SIMDGROUPS];
  TopExperts<256, 16> top;
};

template <class T, int COLUMNS, int SIMDGROUPS>
kernel void experts_up_step(device const uint* gate_codes [[buffer(0)]], device const bfloat* gate_scales [[buffer(1)]],
                            device const bfloat* gate_biases [[buffer(2)]], device const uint* up_codes [[buffer(3)]],
                            device const bfloat* up_scales [[buffer(4)]], device const bfloat* up_biases [[buffer(5)]],
                            device const float* x [[buffer(6)]], device const float* norm [[buffer(7)]],
                            device const float* logits [[buffer(8)]], device float* act [[buffer(9)]],
                            constant ExpertsUpStep& p [[buffer(10)]], uint3 group [[threadgroup_position_in_grid]],
                            uint tid [[thread_index_in_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]],
                            uint lane [[thread_index_in_simdgroup]]) {
  using Memory = ExpertsUpMemory<T, SIMDGROUPS>;
  STEP_SHARED(Memory, mem);
  constexpr uint HALF = SIMDGROUPS / 2;
  constexpr bool RAGGED = COLUMNS == 0;
  const uint columns = COLUMNS > 0 ? COLUMNS : p.columns, first_row = group.x * T::kRows;
  const uint first_slice = sg % HALF, first_value = first_slice * T::kSlice + lane * T::kValues;
  const bool is_up = sg >= HALF;
  float weight[T::kValues], v[T::kValues];
  read_slice<T::kValues, RAGGED>(norm, first_value, columns, weight);
  wait_for_inputs();
  read_slice<T::kValues, RAGGED>(x, first_value, columns, v);
  if (sg == 0) choose_experts(logits, p.experts, p.count, mem.top, lane);
  T tile;
  tile.zero();
  float sum = 0.f;
  METAL_PRAGMA_UNROLL
  for (int i = 0; i < T::kValues; ++i) {
    sum += v[i] * v[i];
    v[i] *= weight[i];
  }
  tile.prepare(v, mem.stage[sg], lane);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint expert_row = mem.top.id[group.y] * p.rows;
  const QuantizedRows w = quantized_rows(is_up ? up_codes : gate_codes, is_up ? up_scales : gate_scales,
                                         is_up ? up_biases : gate_biases, expert_row + p.rows, columns);
  for (uint slice = first_slice; slice * T::kSlice < columns; slice += HALF) {
    tile.load(w, expert_row + first_row, slice, mem.stage[sg], lane);
    if (slice != first_slice) {
      const uint first = slice * T::kSlice + lane * T::kValues;
      read_slice<T::kValues, RAGGED>(norm, first, columns, weight);
      read_slice<T::kValues, RAGGED>(x, first, columns, v);
      METAL_PRAGMA_UNROLL
      for (int i = 0; i < T::kValues; ++i) {
        sum += v[i] * v[i];
        v[i] *= weight[i];
      }
      tile.prepare(v, mem.stage[sg], lane);
    }
    tile.multiply(mem.stage[sg], lane);
  }
  tile.finish(mem.part[sg], lane);
  sum = simd_sum(sum);
  if (lane == 0) mem.squares[sg] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (tid < T::kRows && first_row + tid < p.rows) {
    float gate = 0.f, up = 0.f, square = 0.f;
    for (uint s = 0; s < HALF; ++s) {
      gate += mem.part[s][tid];
      up += mem.part[HALF + s][tid];
      square += mem.squares[s];
    }
    const float scale = rsqrt(square / float(columns) + p.eps);
    act[group.y * p.rows + first_row + tid] = silu(gate * scale) * (up * scale);
  }
}
