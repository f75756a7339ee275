// matrix_rate with the tensor cores' own instruction, all operands in registers: each simdgroup adds 16 products of
// 16 x 16 by 16 x 8 values a pass, as many independent sums as hide the instruction's latency.
#include "../mma.h"
#include "../numeric.h"

template <int THREADS>
kernel void matrix_rate_mma(device float* out [[buffer(0)]], constant uint& passes [[buffer(1)]],
                            uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]]) {
  uint a[4], b[2];
  METAL_PRAGMA_UNROLL
  for (uint i = 0; i < 4; ++i) a[i] = pair_of(bfloat(float((tid + i) % 7) - 3.f), bfloat(float((tid + i) % 5) - 2.f));
  METAL_PRAGMA_UNROLL
  for (uint i = 0; i < 2; ++i) b[i] = pair_of(bfloat(float((tid + i) % 3) - 1.f), bfloat(float(tid % 2)));
  float acc[16][4];
  METAL_PRAGMA_UNROLL
  for (int i = 0; i < 16; ++i) acc[i][0] = acc[i][1] = acc[i][2] = acc[i][3] = float(i);
  for (uint pass = 0; pass < passes; ++pass) {
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < 16; ++i) mma_16x8x16(acc[i], a[0], a[1], a[2], a[3], b[0], b[1]);
  }
  float sum = 0.f;
  METAL_PRAGMA_UNROLL
  for (int i = 0; i < 16; ++i) sum += acc[i][0] + acc[i][1] + acc[i][2] + acc[i][3];
  out[group.x * THREADS + tid] = sum;
}
ENTRY(matrix_rate_mma_256, 256, matrix_rate_mma<256>)
