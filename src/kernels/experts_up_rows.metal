// act[position] = silu(n gate^T) * (n up^T) in operand order, for the rows n (operand order) of each expert's tiles.
// The grid is 32 columns of act by tile.
#include "experts_rows.h"

template <int BM, int BITS>
kernel void experts_up_rows(
    device const uint* gate_codes [[buffer(0)]], device const bfloat* gate_scales [[buffer(1)]],
    device const bfloat* gate_biases [[buffer(2)]], device const uint* up_codes [[buffer(3)]],
    device const bfloat* up_scales [[buffer(4)]], device const bfloat* up_biases [[buffer(5)]],
    device const uint* shared_gate_codes [[buffer(6)]], device const bfloat* shared_gate_scales [[buffer(7)]],
    device const bfloat* shared_gate_biases [[buffer(8)]], device const uint* shared_up_codes [[buffer(9)]],
    device const bfloat* shared_up_scales [[buffer(10)]], device const bfloat* shared_up_biases [[buffer(11)]],
    device const ExpertTile* tiles [[buffer(12)]], device const uint* pair_at [[buffer(13)]],
    device const bfloat* n [[buffer(14)]], device bfloat* act [[buffer(15)]], constant ExpertsRows& p [[buffer(16)]],
    uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
    uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  using Memory = GemmMemory<BM>;
  SHARED(Memory, mem);
  const ExpertTile tile = tiles[group.y];
  const bool is_shared = tile.expert == p.plan.experts;
  const uint width = is_shared ? p.shared_width : p.width, first_column = group.x * 32;
  if (tile.rows == 0 || first_column >= width) return;
  for (uint i = tid; i < BM; i += 4 * BM) {
    uint row = kNoRow;
    if (i < tile.rows)
      row = is_shared ? tile.first + i - p.plan.rows * p.plan.count : pair_at[tile.first + i] / p.plan.count;
    mem.rows[i] = row;
  }
  const QuantizedRows gate =
      is_shared ? quantized_rows(shared_gate_codes, shared_gate_scales, shared_gate_biases, width, p.hidden)
                : expert_matrix<BITS>(gate_codes, gate_scales, gate_biases, tile.expert, width, p.hidden);
  const QuantizedRows up = is_shared
                               ? quantized_rows(shared_up_codes, shared_up_scales, shared_up_biases, width, p.hidden)
                               : expert_matrix<BITS>(up_codes, up_scales, up_biases, tile.expert, width, p.hidden);
  gemm_tile<BM, BITS, true>(n, p.hidden, gate, up, first_column, mem, tid, sg, lane);
  for (uint i = tid; i < BM * 32; i += 4 * BM) {
    const uint row = i / 32, column = first_column + i % 32;
    if (row < tile.rows)
      act[ulong(tile.first + row) * p.stride + operand_place(column)] =
          bfloat(silu(mem.c[row][i % 32]) * mem.c[row][32 + i % 32]);
  }
}
ENTRY(experts_up_rows_q4, 128, experts_up_rows<32, 4>)
ENTRY(experts_up_rows_q4_16, 64, experts_up_rows<16, 4>)
ENTRY(experts_up_rows_bf16, 128, experts_up_rows<32, 16>)
