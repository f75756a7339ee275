// The experts of each row, from the router's logits [rows, experts + 1]; a simdgroup takes a row.
#include "experts_plan.h"
#include "top_experts.h"

template <int SIMDGROUPS>
struct RouteRowsMemory {
  TopExperts<256, 16> top[SIMDGROUPS];
};

template <int SIMDGROUPS>
kernel void route_rows(device const float* logits [[buffer(0)]], device uint* ids [[buffer(1)]],
                       device float* shares [[buffer(2)]], device float* shared_shares [[buffer(3)]],
                       device atomic_uint* counts [[buffer(4)]], constant ExpertRows& p [[buffer(5)]],
                       uint3 group [[threadgroup_position_in_grid]], uint sg [[simdgroup_index_in_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]]) {
  using Memory = RouteRowsMemory<SIMDGROUPS>;
  SHARED(Memory, mem);
  const uint row = group.x * SIMDGROUPS + sg;
  if (row >= p.rows) return;
  device const float* mine = logits + ulong(row) * (p.experts + 1);
  choose_experts(mine, p.experts, p.count, mem.top[sg], lane);
  share_experts(p.count, mem.top[sg], lane);
  if (lane < p.count) {
    const uint id = mem.top[sg].id[lane];
    ids[row * p.count + lane] = id;
    shares[row * p.count + lane] = mem.top[sg].share[lane];
    atomic_fetch_add_explicit(&counts[id], 1u, memory_order_relaxed);
  }
  if (lane == 0) shared_shares[row] = sigmoid(mine[p.experts]);
}
ENTRY(route_rows_4, 128, route_rows<4>)
