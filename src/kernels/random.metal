// Made-up weights for benchmarks: words of random bits, and bf16 values base * (1 + spread * r) with r in [-1, 1).
#include "numeric.h"

METAL_FUNC uint scramble(uint x, uint seed) {
  x ^= seed * 0x9e3779b9u;
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) * 0x846ca68bu;
  return x ^ (x >> 16);
}

template <int T>
kernel void fill_words(device uint* out [[buffer(0)]], constant uint& count [[buffer(1)]],
                       constant uint& seed [[buffer(2)]], uint3 group [[threadgroup_position_in_grid]],
                       uint tid [[thread_index_in_threadgroup]], uint3 groups [[threadgroups_per_grid]]) {
  for (uint i = group.x * T + tid; i < count; i += groups.x * T) out[i] = scramble(i, seed);
}
ENTRY(random_words, 256, fill_words<256>)

struct RandomValues {
  uint pairs;
  uint seed;
  float base;
  float spread;
};

template <int T>
kernel void fill_values(device uint* out [[buffer(0)]], constant RandomValues& p [[buffer(1)]],
                        uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                        uint3 groups [[threadgroups_per_grid]]) {
  for (uint i = group.x * T + tid; i < p.pairs; i += groups.x * T) {
    const uint bits = scramble(i, p.seed);
    const float low = float(bits & 0xffffu) / 32768.f - 1.f, high = float(bits >> 16) / 32768.f - 1.f;
    out[i] = pair_of(bfloat(p.base * (1.f + p.spread * low)), bfloat(p.base * (1.f + p.spread * high)));
  }
}
ENTRY(random_values, 256, fill_values<256>)
