// What the attention kernels share: head norm with rotary position embedding, by one simdgroup.
//
//   x = rope(rms_norm(x, weight))     dimensions [0, ROTARY) turn in pairs (i, i + ROTARY / 2)
//
// and where the cache keeps a value. 8 dimensions of a token's head always stand together; the strides say how these
// stand to each other. Coalesced, [token][head][D], neighbouring lanes read neighbouring bytes.
#pragma once

#include "numeric.h"

// Of bf16 values: from token to token, from head to head, from 8 dimensions to the next 8.
struct CacheStrides {
  uint token;
  uint head;
  uint chunk;
};
METAL_FUNC ulong cache_offset(uint head_stride, uint chunk_stride, uint head, uint dimension) {
  return ulong(head) * head_stride + ulong(dimension / 8) * chunk_stride + dimension % 8;
}

// A lane holds D / 32 consecutive dimensions in v. `turn` is the position's row of [ROTARY / 2] (cos, sin) pairs.
template <int D, int ROTARY>
METAL_FUNC void norm_and_rope(thread float* v, device const float* weight, device const float* turn, float eps,
                              uint lane) {
  constexpr int N = D / 32, HALF = ROTARY / 2;
  static_assert(HALF % N == 0 && (HALF / N & (HALF / N - 1)) == 0, "a partner is in a lane of its own");
  float squares = 0.f;
  METAL_PRAGMA_UNROLL
  for (int i = 0; i < N; ++i) squares += v[i] * v[i];
  const float scale = rsqrt(simd_sum(squares) / D + eps);
  METAL_PRAGMA_UNROLL
  for (int i = 0; i < N; ++i) {
    const uint d = lane * N + i;
    v[i] *= scale * weight[d];
    const float partner = simd_shuffle_xor(v[i], ushort(HALF / N));
    if (d < ROTARY) {
      const float c = turn[d % HALF * 2], s = turn[d % HALF * 2 + 1];
      v[i] = d < HALF ? v[i] * c - partner * s : v[i] * c + partner * s;
    }
  }
}
