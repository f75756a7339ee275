// Which experts a row of router logits chooses, and their shares: softmax over all experts, the best `count`
// renormalised to sum 1, which is the softmax over the best alone. Equal logits: the lower index first.
//
// By rank: a logit's place is the number of logits before it. Only those at least as large as a lower bound of the
// count-th best are compared: the least of the 32-wide columns' maxima, when there are at least `count` columns.
#pragma once

#include "numeric.h"

template <int EXPERTS, int COUNT>
struct TopExperts {
  uint id[COUNT];
  float logit[COUNT];
  float share[COUNT];
  float candidate[EXPERTS];
  uint index[EXPERTS];
};

// Run by one simdgroup. EXPERTS: at most so many, a multiple of 32.
template <int EXPERTS, int COUNT>
METAL_FUNC void choose_experts(device const float* logits, uint experts, uint count,
                               threadgroup TopExperts<EXPERTS, COUNT>& top, uint lane) {
  constexpr int COLUMNS = EXPERTS / 32;
  float v[COLUMNS], bound = 1e30f;
  uint columns = 0;
  METAL_PRAGMA_UNROLL
  for (int c = 0; c < COLUMNS; ++c) v[c] = c * 32 + lane < experts ? logits[c * 32 + lane] : -1e30f;
  METAL_PRAGMA_UNROLL
  for (int c = 0; c < COLUMNS; ++c) {
    const float column = simd_max(v[c]);
    if (column > -1e30f) {
      bound = min(bound, column);
      ++columns;
    }
  }
  if (columns < count) bound = -1e30f;
  uint mine = 0;
  METAL_PRAGMA_UNROLL
  for (int c = 0; c < COLUMNS; ++c) mine += v[c] >= bound && c * 32 + lane < experts ? 1u : 0u;
  uint place = simd_prefix_exclusive_sum(mine);
  const uint candidates = simd_sum(mine);
  METAL_PRAGMA_UNROLL
  for (int c = 0; c < COLUMNS; ++c) {
    if (v[c] >= bound && c * 32 + lane < experts) {
      top.candidate[place] = v[c];
      top.index[place] = c * 32 + lane;
      ++place;
    }
  }
  if (lane < count) {  // stands if the logits are not numbers: the experts are then as good as any
    top.id[lane] = lane;
    top.logit[lane] = 0.f;
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = lane; i < candidates; i += 32) {
    const float value = top.candidate[i];
    const uint index = top.index[i];
    uint rank = 0;
    for (uint j = 0; j < candidates; ++j)
      rank += top.candidate[j] > value || (top.candidate[j] == value && top.index[j] < index) ? 1u : 0u;
    if (rank < count) {
      top.id[rank] = index;
      top.logit[rank] = value;
    }
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  const float weight = lane < count ? exp(top.logit[lane] - top.logit[0]) : 0.f;
  const float total = simd_sum(weight);
  if (lane < count) top.share[lane] = weight / total;
  simdgroup_barrier(mem_flags::mem_threadgroup);
}
