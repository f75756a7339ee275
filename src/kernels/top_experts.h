// Which experts a row of router logits chooses, and their shares: softmax over all experts, the best `count`
// renormalised to sum 1, which is the softmax over the best alone. Equal logits: the lower index first.
//
// By rank: a logit's place is the number of logits before it. Only those at least as large as a lower bound of the
// count-th best are compared: the least of the 32-wide columns' maxima, when there are at least `count` columns. They
// are listed in the order of their indices.
#pragma once

#include "numeric.h"

template <int EXPERTS, int COUNT>
struct TopExperts {
  vec<uint, 4> key[EXPERTS / 4 + 1];  // of the candidates, see ordered_bits; zeros behind them
  uint index[EXPERTS];
  uint id[COUNT];
  float logit[COUNT];
  float share[COUNT];
};

// Fills id and logit, best first. Run by one simdgroup; EXPERTS: at most so many, a multiple of 32.
template <int EXPERTS, int COUNT>
METAL_FUNC void choose_experts(device const float* logits, uint experts, uint count,
                               threadgroup TopExperts<EXPERTS, COUNT>& top, uint lane) {
  constexpr int COLUMNS = EXPERTS / 32;
  uint key[COLUMNS], bound = ~0u;
  METAL_PRAGMA_UNROLL
  for (uint c = 0; c < COLUMNS; ++c) key[c] = c * 32 + lane < experts ? ordered_bits(logits[c * 32 + lane]) : 0u;
  METAL_PRAGMA_UNROLL
  for (uint c = 0; c < COLUMNS; ++c) {
    const uint best = simd_max(key[c]);
    if (c * 32 < experts) bound = min(bound, best);
  }
  if ((experts + 31) / 32 < count) bound = 1;
  threadgroup uint* keys = (threadgroup uint*)top.key;
  uint candidates = 0;
  METAL_PRAGMA_UNROLL
  for (uint c = 0; c < COLUMNS; ++c) {
    uint found = 0;
    const uint place = candidates + lanes_before(key[c] >= bound, lane, found);
    if (key[c] >= bound) {
      keys[place] = key[c];
      top.index[place] = c * 32 + lane;
    }
    candidates += found;
  }
  if (lane < 4) keys[candidates + lane] = 0;
  simdgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = lane; i < candidates; i += 32) {
    const uint own = keys[i];
    uint rank = 0;
    for (uint j = 0; j < candidates; j += 4) {
      const vec<uint, 4> four = top.key[j / 4];
      METAL_PRAGMA_UNROLL
      for (uint k = 0; k < 4; ++k) rank += four[k] > own || (four[k] == own && j + k < i) ? 1u : 0u;
    }
    if (rank < count) {
      top.id[rank] = top.index[i];
      top.logit[rank] = from_ordered_bits(own);
    }
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
}

// Fills share, after choose_experts by the same simdgroup.
template <int EXPERTS, int COUNT>
METAL_FUNC void share_experts(uint count, threadgroup TopExperts<EXPERTS, COUNT>& top, uint lane) {
  const float weight = lane < count ? exp(top.logit[lane] - top.logit[0]) : 0.f;
  const float total = simd_sum(weight);
  if (lane < count) top.share[lane] = weight / total;
  simdgroup_barrier(mem_flags::mem_threadgroup);
}
