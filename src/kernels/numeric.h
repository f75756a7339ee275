// Small functions that many kernels share: activations, bf16 pairs, sums over the lanes of a simdgroup.
#pragma once

#include "lily.h"

METAL_FUNC float sigmoid(float x) {
  return 1.f / (1.f + exp(-x));
}
METAL_FUNC float silu(float x) {
  return x / (1.f + exp(-x));
}
// log(1 + exp(x)) without overflow
METAL_FUNC float softplus(float x) {
  return max(x, 0.f) + log(1.f + exp(-fabs(x)));
}

// The two bf16 values of a word, lower half first.
METAL_FUNC float low_half(uint pair) {
  return as_type<float>(pair << 16);
}
METAL_FUNC float high_half(uint pair) {
  return as_type<float>(pair & 0xffff0000u);
}
METAL_FUNC uint bits_of(bfloat x) {
  return uint(as_type<ushort>(x));
}
METAL_FUNC uint pair_of(bfloat low, bfloat high) {
  return bits_of(low) | bits_of(high) << 16;
}

// N consecutive floats, N a multiple of 4 and p aligned to 16 bytes, or any N otherwise.
template <int N>
METAL_FUNC void read_floats(device const float* p, thread float* v) {
  if (N % 4 == 0) {
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < N / 4; ++i) {
      const vec<float, 4> four = ((device const vec<float, 4>*)p)[i];
      METAL_PRAGMA_UNROLL
      for (int j = 0; j < 4; ++j) v[4 * i + j] = four[j];
    }
  } else {
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < N; ++i) v[i] = p[i];
  }
}

// 8 consecutive bf16 values, p aligned to 16 bytes.
METAL_FUNC void read_bf16x8(device const bfloat* p, thread float* v) {
  const vec<uint, 4> words = *(device const vec<uint, 4>*)p;
  METAL_PRAGMA_UNROLL
  for (int i = 0; i < 4; ++i) {
    v[2 * i] = low_half(words[i]);
    v[2 * i + 1] = high_half(words[i]);
  }
}

// Sums 16 values over the 32 lanes at once, with 16 shuffles: lanes 2 i and 2 i + 1 get the sum of v[i].
template <int HALF>
METAL_FUNC void fold_sums(thread float* v, uint lane) {
  const bool upper = (lane & uint(2 * HALF)) != 0;
  METAL_PRAGMA_UNROLL
  for (int i = 0; i < HALF; ++i) {
    const float keep = upper ? v[i + HALF] : v[i];
    const float send = upper ? v[i] : v[i + HALF];
    v[i] = keep + simd_shuffle_xor(send, ushort(2 * HALF));
  }
}
METAL_FUNC float simd_sum_of_16(thread float* v, uint lane) {
  fold_sums<8>(v, lane);
  fold_sums<4>(v, lane);
  fold_sums<2>(v, lane);
  fold_sums<1>(v, lane);
  return v[0] + simd_shuffle_xor(v[0], ushort(1));
}

// How many lanes before this one have `v`, and how many in all.
#if defined(__CUDACC__)
METAL_FUNC uint lanes_before(bool v, uint lane, thread uint& all) {
  const uint mask = __ballot_sync(~0u, v);
  all = popcount(mask);
  return popcount(mask & ((1u << lane) - 1u));
}
#else
METAL_FUNC uint lanes_before(bool v, uint, thread uint& all) {
  const uint one = v ? 1u : 0u;
  all = simd_sum(one);
  return simd_prefix_exclusive_sum(one);
}
#endif

// A float's bits, reordered so that unsigned comparison orders as the floats do.
METAL_FUNC uint ordered_bits(float x) {
  const uint u = as_type<uint>(x);
  return (u & 0x80000000u) != 0u ? ~u : u | 0x80000000u;
}
METAL_FUNC float from_ordered_bits(uint u) {
  return as_type<float>((u & 0x80000000u) != 0u ? u & 0x7fffffffu : ~u);
}
