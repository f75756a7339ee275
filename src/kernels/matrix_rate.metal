// Nothing but matrix products, to measure how fast they can be: each simdgroup adds `passes` products of 16 x 64 by
// 64 x 32 values that stay in threadgroup memory, 16 * 32 * 64 multiplications with their additions each.
#include "tile.h"

struct MatrixRateMemory {
  bfloat a[32][72], b[64][72];
  float c[32][64];
};

template <int THREADS>
kernel void matrix_rate(device float* out [[buffer(0)]], constant uint& passes [[buffer(1)]],
                        uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                        uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  SHARED(MatrixRateMemory, mem);
  for (uint i = tid; i < 32 * 72; i += THREADS) mem.a[i / 72][i % 72] = bfloat(float(i % 7) - 3.f);
  for (uint i = tid; i < 64 * 72; i += THREADS) mem.b[i / 72][i % 72] = bfloat(float(i % 5) - 2.f);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint sm = sg / 2 * 16, sn = sg % 2 * 32;
  Tile<16, 32> acc;
  acc.zero();
  for (uint pass = 0; pass < passes; ++pass) acc.template mma<64>(&mem.a[sm][0], 72, &mem.b[sn][0], 72, lane);
  acc.store(&mem.c[sm][sn], 64, lane);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = 0.f;
  for (uint i = 0; i < 32 * 64 / THREADS; ++i) sum += mem.c[i][tid % 64];
  out[group.x * THREADS + tid] = sum;
}
ENTRY(matrix_rate_128, 128, matrix_rate<128>)
