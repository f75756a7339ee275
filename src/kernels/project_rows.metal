// Products of many rows, A in operand order [rows, columns]: out = A W^T in bf16 or float32, or x += A W^T.
#include "gemm.h"

template <int BM, int BITS, class Out, bool ADD>
kernel void project_rows(device const uint* codes [[buffer(0)]], device const bfloat* scales [[buffer(1)]],
                         device const bfloat* biases [[buffer(2)]], device const bfloat* a [[buffer(3)]],
                         device Out* out [[buffer(4)]], constant ProjectRows& p [[buffer(5)]],
                         uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                         uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  using Memory = GemmMemory<BM>;
  SHARED(Memory, mem);
  const uint first_row = group.y * BM, first_column = group.x * 64;
  for (uint i = tid; i < BM; i += 128) mem.rows[i] = first_row + i < p.rows ? first_row + i : kNoRow;
  const QuantizedRows w = quantized_rows(codes, scales, biases, p.out, p.columns);
  gemm_tile<BM, BITS, false>(a, p.columns, w, w, first_column, mem, tid, sg, lane);
  for (uint i = tid; i < BM * 64; i += 128) {
    const uint row = first_row + i / 64, column = first_column + i % 64;
    if (row >= p.rows || column >= p.out) continue;
    const ulong place = ulong(row) * p.out + column;
    const float value = mem.c[i / 64][i % 64];
    out[place] = ADD ? Out(float(out[place]) + value) : Out(value);
  }
}
ENTRY(project_rows_q4, 128, project_rows<32, 4, bfloat, false>)
ENTRY(project_rows_q8_float, 128, project_rows<32, 8, float, false>)
ENTRY(project_rows_bf16, 128, project_rows<32, 16, bfloat, false>)
ENTRY(project_rows_bf16_float, 128, project_rows<32, 16, float, false>)
ENTRY(project_add_rows_bf16, 128, project_rows<32, 16, float, true>)
ENTRY(project_add_rows_q4, 128, project_rows<32, 4, float, true>)
