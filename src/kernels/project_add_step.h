// x += in W^T for one row; `in` is taken as it is, or is first put through the gated norm of the delta rule:
//
//   in = rms_norm(y, norm) * silu(z)    per value head, the norm over the head's values
//
// A threadgroup makes T::kRows rows of x; each simdgroup takes slices of the columns.
#pragma once

#include "project_step.h"

template <class T, int SIMDGROUPS>
struct ProjectAddMemory {
  typename T::Stage stage[SIMDGROUPS];
  float part[SIMDGROUPS][T::kRows];
};

// COLUMNS 0: from the parameters. HEAD 0: no gated norm, else the value head's size, 8 times a power of two up to 256.
template <class T, int COLUMNS, int SIMDGROUPS, int HEAD>
kernel void project_add_step(device const uint* codes [[buffer(0)]], device const bfloat* scales [[buffer(1)]],
                             device const bfloat* biases [[buffer(2)]], device const float* in [[buffer(3)]],
                             device const float* z [[buffer(4)]], device const float* norm [[buffer(5)]],
                             device float* x [[buffer(6)]], constant ProjectStep& p [[buffer(7)]],
                             uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                             uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  using Memory = ProjectAddMemory<T, SIMDGROUPS>;
  STEP_SHARED(Memory, mem);
  const uint columns = COLUMNS > 0 ? COLUMNS : p.columns;
  const uint first_row = group.x * T::kRows;
  const QuantizedRows w = quantized_rows(codes, scales, biases, p.rows, columns);
  T tile;
  tile.zero();
  tile.load(w, first_row, sg, mem.stage[sg], lane);
  float weight[8];
  if (HEAD > 0) read_floats<8>(norm + (lane * 8) % (HEAD > 0 ? HEAD : 8), weight);
  let_next_start();
  wait_for_inputs();
  const bool has_row = tid < T::kRows && first_row + tid < p.rows;
  const float before = has_row ? x[first_row + tid] : 0.f;
  for (uint slice = sg; slice * T::kSlice < columns; slice += SIMDGROUPS) {
    const uint first = slice * T::kSlice + lane * T::kValues;
    if (slice != sg) tile.load(w, first_row, slice, mem.stage[sg], lane);
    float v[T::kValues];
    read_slice<T::kValues, COLUMNS == 0>(in, first, columns, v);
    if (HEAD > 0) {
      float gate[T::kValues], squares = 0.f;
      read_slice<T::kValues, COLUMNS == 0>(z, first, columns, gate);
      METAL_PRAGMA_UNROLL
      for (int i = 0; i < T::kValues; ++i) squares += v[i] * v[i];
      METAL_PRAGMA_UNROLL
      for (int step = 1; step < HEAD / 8; step *= 2) squares += simd_shuffle_xor(squares, ushort(step));
      const float scale = rsqrt(squares / float(HEAD) + p.eps);
      METAL_PRAGMA_UNROLL
      for (int i = 0; i < T::kValues; ++i) v[i] *= scale * weight[i] * silu(gate[i]);
    }
    tile.prepare(v, mem.stage[sg], lane);
    tile.multiply(mem.stage[sg], lane);
  }
  tile.finish(mem.part[sg], lane);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (has_row) {
    float total = 0.f;
    METAL_PRAGMA_UNROLL
    for (int s = 0; s < SIMDGROUPS; ++s) total += mem.part[s][tid];
    x[first_row + tid] = before + total;
  }
}
