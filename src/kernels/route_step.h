// The router and the shared expert's first half for one row x:
//
//   n = rms_norm(x, norm)
//   logits = n router^T                            [experts + 1]: mlp.gate, then mlp.shared_expert_gate, 8 bits
//   shared = silu(n gate_proj^T) * (n up_proj^T)   [shared intermediate], 4 bits
//
// Threadgroups [0, ceil((experts + 1) / 16)) make 16 logits each, the others 16 values of shared: half of their
// simdgroups the gate, half the up rows.
#pragma once

#include "project_step.h"

struct RouteStep {
  uint experts;
  uint columns;
  uint shared_rows;
  float eps;
};

template <class Stage, int SIMDGROUPS, int ROWS>
struct RouteMemory {
  Stage stage[SIMDGROUPS];
  float part[SIMDGROUPS][ROWS];
  float squares[SIMDGROUPS];
};

// One simdgroup's share of the 16 rows from first_row on: slices first_slice, first_slice + step, ... of the columns.
// Calls wait_for_inputs.
template <class T, bool RAGGED>
METAL_FUNC void normed_share(QuantizedRows w, uint first_row, device const float* x, device const float* norm,
                             uint first_slice, uint step, threadgroup typename T::Stage& stage, threadgroup float* part,
                             threadgroup float* squares, uint lane) {
  float weight[T::kValues], sum = 0.f;
  T tile;
  tile.zero();
  tile.load(w, first_row, first_slice, stage, lane);
  read_slice<T::kValues, RAGGED>(norm, first_slice * T::kSlice + lane * T::kValues, w.columns, weight);
  wait_for_inputs();
  for (uint slice = first_slice; slice * T::kSlice < w.columns; slice += step) {
    const uint first = slice * T::kSlice + lane * T::kValues;
    if (slice != first_slice) {
      tile.load(w, first_row, slice, stage, lane);
      read_slice<T::kValues, RAGGED>(norm, first, w.columns, weight);
    }
    float v[T::kValues];
    read_slice<T::kValues, RAGGED>(x, first, w.columns, v);
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < T::kValues; ++i) {
      sum += v[i] * v[i];
      v[i] *= weight[i];
    }
    tile.prepare(v, stage, lane);
    tile.multiply(stage, lane);
  }
  tile.finish(part, lane);
  sum = simd_sum(sum);
  if (lane == 0) *squares = sum;
}

// COLUMNS 0: from the parameters. Else SIMDGROUPS slices at 8 bits, half as many at 4.
template <class T8, class T4, int COLUMNS, int SIMDGROUPS>
kernel void route_step(device const uint* router_codes [[buffer(0)]], device const bfloat* router_scales [[buffer(1)]],
                       device const bfloat* router_biases [[buffer(2)]], device const uint* gate_codes [[buffer(3)]],
                       device const bfloat* gate_scales [[buffer(4)]], device const bfloat* gate_biases [[buffer(5)]],
                       device const uint* up_codes [[buffer(6)]], device const bfloat* up_scales [[buffer(7)]],
                       device const bfloat* up_biases [[buffer(8)]], device const float* x [[buffer(9)]],
                       device const float* norm [[buffer(10)]], device float* logits [[buffer(11)]],
                       device float* shared [[buffer(12)]], constant RouteStep& p [[buffer(13)]],
                       uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                       uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  using Memory = RouteMemory<typename T8::Stage, SIMDGROUPS, T8::kRows>;  // T4's is the same
  STEP_SHARED(Memory, mem);
  const uint columns = COLUMNS > 0 ? COLUMNS : p.columns, router_rows = p.experts + 1;
  const uint router_groups = (router_rows + 15) / 16;
  if (group.x < router_groups) {
    const uint first_row = group.x * 16;
    normed_share<T8, COLUMNS == 0>(quantized_rows(router_codes, router_scales, router_biases, router_rows, columns),
                                   first_row, x, norm, sg, SIMDGROUPS, mem.stage[sg], mem.part[sg], &mem.squares[sg],
                                   lane);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tid < 16 && first_row + tid < router_rows) {
      float total = 0.f, square = 0.f;
      for (int s = 0; s < SIMDGROUPS; ++s) {
        total += mem.part[s][tid];
        square += mem.squares[s];
      }
      logits[first_row + tid] = total * rsqrt(square / float(columns) + p.eps);
    }
  } else {
    constexpr uint HALF = SIMDGROUPS / 2;
    const uint first_row = (group.x - router_groups) * 16;
    const bool is_up = sg >= HALF;
    const QuantizedRows w = quantized_rows(is_up ? up_codes : gate_codes, is_up ? up_scales : gate_scales,
                                           is_up ? up_biases : gate_biases, p.shared_rows, columns);
    normed_share<T4, COLUMNS == 0>(w, first_row, x, norm, sg % HALF, HALF, mem.stage[sg], mem.part[sg],
                                   &mem.squares[sg], lane);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tid < 16 && first_row + tid < p.shared_rows) {
      float gate = 0.f, up = 0.f, square = 0.f;
      for (uint s = 0; s < HALF; ++s) {
        gate += mem.part[s][tid];
        up += mem.part[HALF + s][tid];
        square += mem.squares[s];
      }
      const float scale = rsqrt(square / float(columns) + p.eps);
      shared[first_row + tid] = silu(gate * scale) * (up * scale);
    }
  }
}
