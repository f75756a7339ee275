// out[position] = act[position] down^T in bf16, for each expert's tiles. The grid is 64 columns of out by tile.
#include "experts_rows.h"

template <int BM, int BITS>
kernel void experts_down_rows(device const uint* codes [[buffer(0)]], device const bfloat* scales [[buffer(1)]],
                              device const bfloat* biases [[buffer(2)]], device const uint* shared_codes [[buffer(3)]],
                              device const bfloat* shared_scales [[buffer(4)]],
                              device const bfloat* shared_biases [[buffer(5)]],
                              device const ExpertTile* tiles [[buffer(6)]], device const bfloat* act [[buffer(7)]],
                              device bfloat* out [[buffer(8)]], constant ExpertsRows& p [[buffer(9)]],
                              uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                              uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  using Memory = GemmMemory<BM>;
  SHARED(Memory, mem);
  const ExpertTile tile = tiles[group.y];
  const bool is_shared = tile.expert == p.plan.experts;
  const uint width = is_shared ? p.shared_width : p.width, first_column = group.x * 64;
  if (tile.rows == 0) return;
  for (uint i = tid; i < BM; i += 4 * BM) mem.rows[i] = i < tile.rows ? tile.first + i : kNoRow;
  QuantizedRows w = is_shared ? quantized_rows(shared_codes, shared_scales, shared_biases, p.hidden, width)
                              : expert_matrix<BITS>(codes, scales, biases, tile.expert, p.hidden, width);
  gemm_tile<BM, BITS, false>(act, p.stride, w, w, first_column, mem, tid, sg, lane);
  for (uint i = tid; i < BM * 64; i += 4 * BM) {
    const uint row = i / 64, column = first_column + i % 64;
    if (row < tile.rows && column < p.hidden)
      out[ulong(tile.first + row) * p.hidden + column] = bfloat(mem.c[row][i % 64]);
  }
}
ENTRY(experts_down_rows_q4, 128, experts_down_rows<32, 4>)
ENTRY(experts_down_rows_q4_16, 64, experts_down_rows<16, 4>)
ENTRY(experts_down_rows_bf16, 128, experts_down_rows<32, 16>)
