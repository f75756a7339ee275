// c = a b^T in bf16: a [32, 64], b [64, 64], c [32, 64]. What a device runs when it
// is opened, to see that its matrix units lay their registers out as tile.h believes.
#include "tile.h"

struct TileProbeMemory {
  bfloat a[32][72], b[64][72];
};
struct TileProbeResult {
  float c[32][64];
};

template <int K>
kernel void tile_probe(device const bfloat* a [[buffer(0)]], device const bfloat* b [[buffer(1)]],
                       device float* c [[buffer(2)]], uint tid [[thread_index_in_threadgroup]],
                       uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  SHARED(TileProbeMemory, mem);
  SHARED(TileProbeResult, result);
  for (uint i = tid; i < 32 * K; i += 64) mem.a[i / K][i % K] = a[i];
  for (uint i = tid; i < 64 * K; i += 64) mem.b[i / K][i % K] = b[i];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  Tile<32, 32> tile;
  tile.zero();
  tile.template mma<K>(&mem.a[0][0], 72, &mem.b[sg * 32][0], 72, lane);
  tile.store(&result.c[0][sg * 32], 64, lane);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = tid; i < 32 * 64; i += 64) c[i] = result.c[i / 64][i % 64];
}
ENTRY(tile_probe_64, 64, tile_probe<64>)
