// out = rms_norm(x, norm) W^T for one row x; the kernel that project_step.metal and cuda/step_mma.metal instantiate.
//
// A threadgroup makes T::kRows rows of out; each simdgroup takes slices of the columns. The sum of squares is made
// beside the product and applied at the end: rms_norm only scales the result.
#pragma once

#include "gemv.h"

#ifndef STEP_SHARED  // src/kernels/cuda/step_mma.metal needs more memory than SHARED gives
#define STEP_SHARED SHARED
#endif

struct ProjectStep {
  uint rows;
  uint columns;
  float eps;
};

template <class T, int SIMDGROUPS>
struct ProjectStepMemory {
  typename T::Stage stage[SIMDGROUPS];
  float part[SIMDGROUPS][T::kRows];
  float squares[SIMDGROUPS];
};

// The lane's N values of a slice that starts at `first`; zeros past the end.
template <int N, bool RAGGED>
METAL_FUNC void read_slice(device const float* x, uint first, uint columns, thread float* v) {
  if (!RAGGED || first < columns) {
    read_floats<N>(x + first, v);
  } else {
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < N; ++i) v[i] = 0.f;
  }
}

// COLUMNS 0: from the parameters. Else SIMDGROUPS slices, one each.
template <class T, int COLUMNS, int SIMDGROUPS>
kernel void project_step(device const uint* codes [[buffer(0)]], device const bfloat* scales [[buffer(1)]],
                         device const bfloat* biases [[buffer(2)]], device const float* x [[buffer(3)]],
                         device const float* norm [[buffer(4)]], device float* out [[buffer(5)]],
                         constant ProjectStep& p [[buffer(6)]], uint3 group [[threadgroup_position_in_grid]],
                         uint tid [[thread_index_in_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]],
                         uint lane [[thread_index_in_simdgroup]]) {
  using Memory = ProjectStepMemory<T, SIMDGROUPS>;
  STEP_SHARED(Memory, mem);
  const uint columns = COLUMNS > 0 ? COLUMNS : p.columns;
  const uint first_row = group.x * T::kRows;
  const QuantizedRows w = quantized_rows(codes, scales, biases, p.rows, columns);
  float squares = 0.f;
  T tile;
  tile.zero();
  tile.load(w, first_row, sg, mem.stage[sg], lane);
  float weight[T::kValues];
  read_slice<T::kValues, COLUMNS == 0>(norm, sg * T::kSlice + lane * T::kValues, columns, weight);
  wait_for_inputs();
  for (uint slice = sg; slice * T::kSlice < columns; slice += SIMDGROUPS) {
    const uint first = slice * T::kSlice + lane * T::kValues;
    if (slice != sg) {
      tile.load(w, first_row, slice, mem.stage[sg], lane);
      read_slice<T::kValues, COLUMNS == 0>(norm, first, columns, weight);
    }
    float v[T::kValues];
    read_slice<T::kValues, COLUMNS == 0>(x, first, columns, v);
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < T::kValues; ++i) {
      squares += v[i] * v[i];
      v[i] *= weight[i];
    }
    tile.prepare(v, mem.stage[sg], lane);
    tile.multiply(mem.stage[sg], lane);
  }
  tile.finish(mem.part[sg], lane);
  squares = simd_sum(squares);
  if (lane == 0) mem.squares[sg] = squares;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (tid < T::kRows && first_row + tid < p.rows) {
    float total = 0.f, square = 0.f;
    for (int s = 0; s < SIMDGROUPS; ++s) {
      total += mem.part[s][tid];
      square += mem.squares[s];
    }
    out[first_row + tid] = total * rsqrt(square / float(columns) + p.eps);
  }
}
