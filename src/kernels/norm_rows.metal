// out = rms_norm(x, norm) in operand order, one threadgroup a row.
#include "operand.h"

struct NormRows {
  uint columns;  // a multiple of 8
  float eps;
};

template <int SIMDGROUPS>
struct NormRowsMemory {
  float squares[SIMDGROUPS];
};

template <int SIMDGROUPS>
kernel void norm_rows(device const float* x [[buffer(0)]], device const float* norm [[buffer(1)]],
                      device bfloat* out [[buffer(2)]], constant NormRows& p [[buffer(3)]],
                      uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                      uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  using Memory = NormRowsMemory<SIMDGROUPS>;
  SHARED(Memory, mem);
  device const float* row = x + ulong(group.x) * p.columns;
  float first[8], squares = 0.f;
  for (uint i = tid * 8; i < p.columns; i += SIMDGROUPS * 256) {
    float v[8];
    read_floats<8>(row + i, v);
    METAL_PRAGMA_UNROLL
    for (int j = 0; j < 8; ++j) {
      squares += v[j] * v[j];
      if (i == tid * 8) first[j] = v[j];
    }
  }
  squares = simd_sum(squares);
  if (lane == 0) mem.squares[sg] = squares;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const float scale = rsqrt(simd_sum(lane < SIMDGROUPS ? mem.squares[lane] : 0.f) / float(p.columns) + p.eps);
  for (uint i = tid * 8; i < p.columns; i += SIMDGROUPS * 256) {
    float v[8], weight[8];
    if (i == tid * 8) {
      METAL_PRAGMA_UNROLL
      for (int j = 0; j < 8; ++j) v[j] = first[j];
    } else {
      read_floats<8>(row + i, v);
    }
    read_floats<8>(norm + i, weight);
    METAL_PRAGMA_UNROLL
    for (int j = 0; j < 8; ++j) v[j] *= scale * weight[j];
    *(device vec<uint, 4>*)(out + ulong(group.x) * p.columns + i) = operand_words(v);
  }
}
ENTRY(norm_rows_256, 256, norm_rows<8>)
