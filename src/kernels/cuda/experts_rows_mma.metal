// experts_up_rows and experts_down_rows on the tensor cores. The grid is 64 columns of act (128 of out) by tile.
#include "../experts_rows.h"
#include "gemm_mma.h"

using ExpandedExperts128 = GemmMmaMemory<128, 16>;
using ExpandedExperts64 = GemmMmaMemory<64, 16>;
using ExpandedExperts32 = GemmMmaMemory<32, 16>;

template <int BM, int BITS>
kernel void experts_up_rows_mma(
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
  using Memory = typename GemmMma<BM, BITS, false>::Memory;
  LARGE_SHARED(Memory, mem);
  const ExpertTile tile = tiles[group.y];
  const bool is_shared = tile.expert == p.plan.experts;
  const uint width = is_shared ? p.shared_width : p.width, first_column = group.x * 64;
  if (tile.rows == 0 || first_column >= width) return;
  if (tid < BM) {
    uint row = kNoOperandRow;
    if (tid < tile.rows)
      row = is_shared ? tile.first + tid - p.plan.rows * p.plan.count : pair_at[tile.first + tid] / p.plan.count;
    mem.rows[tid] = row;
  }
  const QuantizedRows gate =
      is_shared ? quantized_rows(shared_gate_codes, shared_gate_scales, shared_gate_biases, width, p.hidden)
                : expert_matrix<BITS>(gate_codes, gate_scales, gate_biases, tile.expert, width, p.hidden);
  const QuantizedRows up = is_shared
                               ? quantized_rows(shared_up_codes, shared_up_scales, shared_up_biases, width, p.hidden)
                               : expert_matrix<BITS>(up_codes, up_scales, up_biases, tile.expert, width, p.hidden);
  using Gemm = GemmMma<BM, BITS, true>;
  Gemm gemm;
  gemm.run(n, p.hidden, gate, up, first_column, mem, tid, sg, lane);
  METAL_PRAGMA_UNROLL
  for (uint m = 0; m < Gemm::kM; ++m) {
    METAL_PRAGMA_UNROLL
    for (uint piece = 0; piece < Gemm::kN / 2; ++piece) {
      const uint in_tile = Gemm::column_of(2 * piece, sg, lane), place = first_column + in_tile / 16 * 8 + in_tile % 8;
      METAL_PRAGMA_UNROLL
      for (uint i = 0; i < 4; i += 2) {
        const uint row = Gemm::row_of(m, i, sg, lane);
        if (row >= tile.rows || place >= width) continue;
        const float first = silu(gemm.acc[m][2 * piece][i]) * gemm.acc[m][2 * piece + 1][i];
        const float second = silu(gemm.acc[m][2 * piece][i + 1]) * gemm.acc[m][2 * piece + 1][i + 1];
        *(device uint*)(act + ulong(tile.first + row) * p.stride + place) = pair_of(bfloat(first), bfloat(second));
      }
    }
  }
}
ENTRY_LARGE(experts_up_rows_q4_mma_128, 256, 2, GemmMmaMemory<128>, experts_up_rows_mma<128, 4>)
ENTRY_LARGE(experts_up_rows_q4_mma_64, 256, 2, GemmMmaMemory<64>, experts_up_rows_mma<64, 4>)
ENTRY_LARGE(experts_up_rows_q4_mma_32, 256, 3, GemmMmaMemory<32>, experts_up_rows_mma<32, 4>)
ENTRY_LARGE(experts_up_rows_q4_mma_16, 256, 3, GemmMmaMemory<16>, experts_up_rows_mma<16, 4>)
ENTRY_LARGE(experts_up_rows_bf16_mma_128, 256, 2, ExpandedExperts128, experts_up_rows_mma<128, 16>)
ENTRY_LARGE(experts_up_rows_bf16_mma_64, 256, 2, ExpandedExperts64, experts_up_rows_mma<64, 16>)
ENTRY_LARGE(experts_up_rows_bf16_mma_32, 256, 3, ExpandedExperts32, experts_up_rows_mma<32, 16>)

template <int BM, int BITS>
kernel void experts_down_rows_mma(device const uint* codes [[buffer(0)]], device const bfloat* scales [[buffer(1)]],
                                  device const bfloat* biases [[buffer(2)]],
                                  device const uint* shared_codes [[buffer(3)]],
                                  device const bfloat* shared_scales [[buffer(4)]],
                                  device const bfloat* shared_biases [[buffer(5)]],
                                  device const ExpertTile* tiles [[buffer(6)]], device const bfloat* act [[buffer(7)]],
                                  device bfloat* out [[buffer(8)]], constant ExpertsRows& p [[buffer(9)]],
                                  uint3 group [[threadgroup_position_in_grid]],
                                  uint tid [[thread_index_in_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]],
                                  uint lane [[thread_index_in_simdgroup]]) {
  using Memory = typename GemmMma<BM, BITS, false>::Memory;
  LARGE_SHARED(Memory, mem);
  const ExpertTile tile = tiles[group.y];
  const bool is_shared = tile.expert == p.plan.experts;
  const uint width = is_shared ? p.shared_width : p.width, first_column = group.x * 128;
  if (tile.rows == 0) return;
  if (tid < BM) mem.rows[tid] = tid < tile.rows ? tile.first + tid : kNoOperandRow;
  const QuantizedRows w = is_shared ? quantized_rows(shared_codes, shared_scales, shared_biases, p.hidden, width)
                                    : expert_matrix<BITS>(codes, scales, biases, tile.expert, p.hidden, width);
  using Gemm = GemmMma<BM, BITS, false>;
  Gemm gemm;
  gemm.run(act, p.stride, w, w, first_column, mem, tid, sg, lane);
  METAL_PRAGMA_UNROLL
  for (uint m = 0; m < Gemm::kM; ++m) {
    METAL_PRAGMA_UNROLL
    for (uint piece = 0; piece < Gemm::kN; ++piece) {
      const uint column = first_column + Gemm::column_of(piece, sg, lane);
      METAL_PRAGMA_UNROLL
      for (uint i = 0; i < 4; i += 2) {
        const uint row = Gemm::row_of(m, i, sg, lane);
        if (row < tile.rows && column < p.hidden)
          *(device uint*)(out + ulong(tile.first + row) * p.hidden + column) =
              pair_of(bfloat(gemm.acc[m][piece][i]), bfloat(gemm.acc[m][piece][i + 1]));
      }
    }
  }
}
ENTRY_LARGE(experts_down_rows_q4_mma_128, 256, 2, GemmMmaMemory<128>, experts_down_rows_mma<128, 4>)
ENTRY_LARGE(experts_down_rows_q4_mma_64, 256, 2, GemmMmaMemory<64>, experts_down_rows_mma<64, 4>)
ENTRY_LARGE(experts_down_rows_q4_mma_32, 256, 3, GemmMmaMemory<32>, experts_down_rows_mma<32, 4>)
ENTRY_LARGE(experts_down_rows_q4_mma_16, 256, 3, GemmMmaMemory<16>, experts_down_rows_mma<16, 4>)
ENTRY_LARGE(experts_down_rows_bf16_mma_128, 256, 2, ExpandedExperts128, experts_down_rows_mma<128, 16>)
ENTRY_LARGE(experts_down_rows_bf16_mma_64, 256, 2, ExpandedExperts64, experts_down_rows_mma<64, 16>)
ENTRY_LARGE(experts_down_rows_bf16_mma_32, 256, 3, ExpandedExperts32, experts_down_rows_mma<32, 16>)
