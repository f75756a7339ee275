// project_rows on the tensor cores.
#include "../gemm.h"
#include "gemm_mma.h"

template <int BM, int BITS, class Out, bool ADD>
kernel void project_rows_mma(device const uint* codes [[buffer(0)]], device const bfloat* scales [[buffer(1)]],
                             device const bfloat* biases [[buffer(2)]], device const bfloat* a [[buffer(3)]],
                             device Out* out [[buffer(4)]], constant ProjectRows& p [[buffer(5)]],
                             uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                             uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  using Memory = typename GemmMma<BM, BITS, false>::Memory;
  LARGE_SHARED(Memory, mem);
  const uint first_row = group.y * BM, first_column = group.x * 128;
  if (tid < BM) mem.rows[tid] = first_row + tid < p.rows ? first_row + tid : kNoOperandRow;
  const QuantizedRows w = quantized_rows(codes, scales, biases, p.out, p.columns);
  using Gemm = GemmMma<BM, BITS, false>;
  Gemm gemm;
  gemm.run(a, p.columns, w, w, first_column, mem, tid, sg, lane);
  METAL_PRAGMA_UNROLL
  for (uint m = 0; m < Gemm::kM; ++m) {
    METAL_PRAGMA_UNROLL
    for (uint n = 0; n < Gemm::kN; ++n) {
      const uint column = first_column + Gemm::column_of(n, sg, lane);
      METAL_PRAGMA_UNROLL
      for (uint i = 0; i < 4; i += 2) {
        const uint row = first_row + Gemm::row_of(m, i, sg, lane);
        if (row >= p.rows) continue;
        device Out* to = out + ulong(row) * p.out + column;
        METAL_PRAGMA_UNROLL
        for (uint j = 0; j < 2; ++j) {
          const float value = gemm.acc[m][n][i + j];
          if (column + j < p.out) to[j] = ADD ? Out(float(to[j]) + value) : Out(value);
        }
      }
    }
  }
}
ENTRY_LARGE(project_rows_q4_mma_128, 256, 2, GemmMmaMemory<128>, project_rows_mma<128, 4, bfloat, false>)
ENTRY_LARGE(project_rows_q4_mma_32, 256, 3, GemmMmaMemory<32>, project_rows_mma<32, 4, bfloat, false>)
ENTRY_LARGE(project_rows_q8_float_mma_128, 256, 2, GemmMmaMemory<128>, project_rows_mma<128, 8, float, false>)
ENTRY_LARGE(project_rows_q8_float_mma_32, 256, 3, GemmMmaMemory<32>, project_rows_mma<32, 8, float, false>)
ENTRY_LARGE(project_add_rows_q4_mma_128, 256, 2, GemmMmaMemory<128>, project_rows_mma<128, 4, float, true>)
ENTRY_LARGE(project_add_rows_q4_mma_32, 256, 3, GemmMmaMemory<32>, project_rows_mma<32, 4, float, true>)
using ExpandedMemory128 = GemmMmaMemory<128, 16>;
using ExpandedMemory32 = GemmMmaMemory<32, 16>;
ENTRY_LARGE(project_rows_bf16_mma_128, 256, 2, ExpandedMemory128, project_rows_mma<128, 16, bfloat, false>)
ENTRY_LARGE(project_rows_bf16_mma_32, 256, 3, ExpandedMemory32, project_rows_mma<32, 16, bfloat, false>)
ENTRY_LARGE(project_rows_bf16_float_mma_128, 256, 2, ExpandedMemory128, project_rows_mma<128, 16, float, false>)
ENTRY_LARGE(project_rows_bf16_float_mma_32, 256, 3, ExpandedMemory32, project_rows_mma<32, 16, float, false>)
ENTRY_LARGE(project_add_rows_bf16_mma_128, 256, 2, ExpandedMemory128, project_rows_mma<128, 16, float, true>)
ENTRY_LARGE(project_add_rows_bf16_mma_32, 256, 3, ExpandedMemory32, project_rows_mma<32, 16, float, true>)
