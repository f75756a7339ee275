// From the number of rows of each expert to where they begin and to the list of tiles; one threadgroup, a thread for an
// expert (and for the shared one). Lists that are shorter than most_tiles() end in tiles of no rows.
#include "experts_plan.h"

template <int THREADS>
struct PlanMemory {
  uint rows[THREADS / 32], tiles[THREADS / 32];
};

template <int THREADS>
kernel void plan_experts(device const uint* counts [[buffer(0)]], device uint* next_position [[buffer(1)]],
                         device ExpertTile* tiles [[buffer(2)]], constant ExpertRows& p [[buffer(3)]],
                         uint tid [[thread_index_in_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]],
                         uint lane [[thread_index_in_simdgroup]]) {
  using Memory = PlanMemory<THREADS>;
  SHARED(Memory, mem);
  const uint rows = tid < p.experts ? counts[tid] : tid == p.experts ? p.rows : 0u;
  const uint own_tiles = (rows + p.tile_rows - 1) / p.tile_rows;
  uint first = simd_prefix_exclusive_sum(rows), tile = simd_prefix_exclusive_sum(own_tiles);
  if (lane == 31) {
    mem.rows[sg] = first + rows;
    mem.tiles[sg] = tile + own_tiles;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  uint all_tiles = 0;
  for (uint s = 0; s < THREADS / 32; ++s) {
    if (s < sg) {
      first += mem.rows[s];
      tile += mem.tiles[s];
    }
    all_tiles += mem.tiles[s];
  }
  if (tid < p.experts) next_position[tid] = first;
  for (uint i = 0; i < own_tiles; ++i) {
    tiles[tile + i].expert = tid;
    tiles[tile + i].first = first + i * p.tile_rows;
    tiles[tile + i].rows = min(p.tile_rows, rows - i * p.tile_rows);
  }
  for (uint i = all_tiles + tid; i < most_tiles(p.rows, p.experts, p.count, p.tile_rows); i += THREADS)
    tiles[i].rows = 0;
}
ENTRY(plan_experts_288, 288, plan_experts<288>)
