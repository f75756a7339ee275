// out = rms_norm(y, norm) * silu(z) per value head of D values, in operand order. A threadgroup makes 2048 values of a
// row.
#include "delta_rows.h"
#include "operand.h"

template <int D>
kernel void gated_norm_rows(device const bfloat* y [[buffer(0)]], device const bfloat* projected [[buffer(1)]],
                            device const float* norm [[buffer(2)]], device bfloat* out [[buffer(3)]],
                            constant DeltaRows& p [[buffer(4)]], uint3 group [[threadgroup_position_in_grid]],
                            uint tid [[thread_index_in_threadgroup]]) {
  const uint columns = p.value_heads * D, column = (group.x * 256 + tid) * 8, row = group.y;
  const uint z = (2 * p.key_heads + p.value_heads) * D;
  const bool inside = column < columns;
  float v[8], gate[8], weight[8], squares = 0.f;
  if (inside) {
    read_bf16x8(y + ulong(row) * columns + column, v);
    read_bf16x8(projected + ulong(row) * p.stride + z + column, gate);
    read_floats<8>(norm + column % D, weight);
  } else {
    for (int i = 0; i < 8; ++i) v[i] = gate[i] = weight[i] = 0.f;
  }
  METAL_PRAGMA_UNROLL
  for (int i = 0; i < 8; ++i) squares += v[i] * v[i];
  METAL_PRAGMA_UNROLL
  for (int step = 1; step < D / 8; step *= 2) squares += simd_shuffle_xor(squares, ushort(step));
  const float scale = rsqrt(squares / D + p.eps);
  METAL_PRAGMA_UNROLL
  for (int i = 0; i < 8; ++i) v[i] *= scale * weight[i] * silu(gate[i]);
  if (inside) *(device vec<uint, 4>*)(out + ulong(row) * columns + column) = operand_words(v);
}
ENTRY(gated_norm_rows_128, 256, gated_norm_rows<128>)
ENTRY(gated_norm_rows_64, 256, gated_norm_rows<64>)
