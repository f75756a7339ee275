// Softmax attention over blocks of tokens with running maximum and sum (the blocks' order does not matter beyond
// rounding, and no score matrix is ever kept). Keys and values are float32 or float16 in the cache; every sum is
// float32.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/kernels_attention.cpp"  // NOLINT
#include <algorithm>
#include <bit>
#include <cmath>

#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "ops/cpu/kernel_tables.h"
#include "ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lily::cpu::HWY_NAMESPACE {
namespace {

constexpr int kQueryTile = kTileRegisters / 2;  // times two vectors of values
constexpr int kScoreTile = kTileRegisters / 4;  // times four tokens

// widened[t][c] for the tokens of one block; float32 rows are used where they are.
template <class T>
HWY_INLINE const float* widen(const T* rows, std::int64_t tokens, std::int64_t head_dim, float* widened) {
  if constexpr (std::is_same_v<T, float>) {
    return rows;
  } else {
    for_lanes(tokens * head_dim, [&](auto d, std::int64_t i) HWY_ATTR {
      const hn::Rebind<hwy::float16_t, decltype(d)> narrow;
      hn::StoreU(hn::PromoteTo(d, hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(rows) + i)), d,
                 widened + i);
    });
    return widened;
  }
}

// scores[i][t] for kQueries queries and kTokens tokens.
template <int kQueries, int kTokens>
HWY_INLINE void score_tile(const float* q, const float* k, std::int64_t head_dim, float* scores) {
  const FloatTag d;
  constexpr int kSums = kQueries * kTokens;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  FloatVector sums[kSums];
  for (int n = 0; n < kSums; ++n) sums[n] = hn::Zero(d);
  std::int64_t c = 0;
  for (; c + lanes <= head_dim; c += lanes) {
    FloatVector keys[kTokens];
    for (int t = 0; t < kTokens; ++t) keys[t] = hn::LoadU(d, k + t * head_dim + c);
    for (int i = 0; i < kQueries; ++i) {
      const FloatVector query = hn::LoadU(d, q + i * head_dim + c);
      for (int t = 0; t < kTokens; ++t) sums[i * kTokens + t] = hn::MulAdd(query, keys[t], sums[i * kTokens + t]);
    }
  }
  for (int i = 0; i < kQueries; ++i) {
    float* row = scores + i * kAttendBlock;
    if constexpr (kTokens == 4) {
      sums_of_four(sums + i * kTokens, row);
    } else {
      for (int t = 0; t < kTokens; ++t) row[t] = sum_of(d, sums[i * kTokens + t]);
    }
    for (std::int64_t r = c; r < head_dim; ++r) {
      for (int t = 0; t < kTokens; ++t) row[t] += q[i * head_dim + r] * k[t * head_dim + r];
    }
  }
}

template <int kQueries>
HWY_INLINE void score_rows(const float* q, const float* k, std::int64_t tokens, std::int64_t head_dim, float* scores) {
  std::int64_t t = 0;
  for (; t + 4 <= tokens; t += 4) {
    const float* keys = k + t * head_dim;
    std::int64_t i = 0;
    for (; i + kScoreTile <= kQueries; i += kScoreTile) {
      score_tile<kScoreTile, 4>(q + i * head_dim, keys, head_dim, scores + i * kAttendBlock + t);
    }
    for (; i < kQueries; ++i) score_tile<1, 4>(q + i * head_dim, keys, head_dim, scores + i * kAttendBlock + t);
  }
  for (; t < tokens; ++t) {
    for (std::int64_t i = 0; i < kQueries; ++i) {
      score_tile<1, 1>(q + i * head_dim, k + t * head_dim, head_dim, scores + i * kAttendBlock + t);
    }
  }
}

// out[i] += sum_t weights[i][t] * v[t], over kVectors vectors of the head.
template <int kQueries, int kVectors, class D>
HWY_INLINE void value_tile(D d, const float* weights, const float* v, std::int64_t tokens, std::int64_t head_dim,
                           float* out) {
  using V = hn::Vec<D>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V sums[kQueries][kVectors];
  for (int i = 0; i < kQueries; ++i) {
    for (int j = 0; j < kVectors; ++j) sums[i][j] = hn::LoadU(d, out + i * head_dim + j * lanes);
  }
  for (std::int64_t t = 0; t < tokens; ++t) {
    V values[kVectors];
    for (int j = 0; j < kVectors; ++j) values[j] = hn::LoadU(d, v + t * head_dim + j * lanes);
    for (int i = 0; i < kQueries; ++i) {
      const V weight = hn::Set(d, weights[i * kAttendBlock + t]);
      for (int j = 0; j < kVectors; ++j) sums[i][j] = hn::MulAdd(weight, values[j], sums[i][j]);
    }
  }
  for (int i = 0; i < kQueries; ++i) {
    for (int j = 0; j < kVectors; ++j) hn::StoreU(sums[i][j], d, out + i * head_dim + j * lanes);
  }
}

template <int kQueries>
HWY_INLINE void value_rows(const float* weights, const float* v, std::int64_t tokens, std::int64_t head_dim,
                           float* out) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t c = 0;
  for (; c + 2 * lanes <= head_dim; c += 2 * lanes) {
    value_tile<kQueries, 2>(d, weights, v + c, tokens, head_dim, out + c);
  }
  for (; c + lanes <= head_dim; c += lanes) value_tile<kQueries, 1>(d, weights, v + c, tokens, head_dim, out + c);
  const hn::CappedTag<float, 1> one;
  for (; c < head_dim; ++c) value_tile<kQueries, 1>(one, weights, v + c, tokens, head_dim, out + c);
}

// Turns the scores of one query into weights exp(score - maximum) and rescales what was summed before.
// Tokens from `visible` on get weight 0.
HWY_INLINE void soften(const AttendCall& call, std::int64_t query, std::int64_t tokens, std::int64_t visible,
                       float* scores) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const float before = call.maximum[query];
  FloatVector most = hn::Set(d, before);
  float maximum = before;
  std::int64_t t = 0;
  for (; t + lanes <= visible; t += lanes) most = hn::Max(most, hn::LoadU(d, scores + t));
  for (; t < visible; ++t) maximum = HWY_MAX(maximum, scores[t]);
  maximum = HWY_MAX(maximum, hn::GetLane(hn::MaxOfLanes(d, most)));
  call.maximum[query] = maximum;

  FloatVector sum = hn::Zero(d);
  float rest = 0;
  for (t = 0; t + lanes <= visible; t += lanes) {
    const FloatVector weight = hn::Exp(d, hn::Sub(hn::LoadU(d, scores + t), hn::Set(d, maximum)));
    hn::StoreU(weight, d, scores + t);
    sum = hn::Add(sum, weight);
  }
  for (; t < visible; ++t) {
    scores[t] = hn::GetLane(hn::Exp(d, hn::Set(d, scores[t] - maximum)));
    rest += scores[t];
  }
  for (; t < tokens; ++t) scores[t] = 0;
  rest += sum_of(d, sum);
  if (maximum == before) {
    call.sum[query] += rest;
    return;
  }
  const float keep = hn::GetLane(hn::Exp(d, hn::Set(d, before - maximum)));
  call.sum[query] = call.sum[query] * keep + rest;
  float* out = call.out + query * call.head_dim;
  for_lanes(call.head_dim, [&](auto tag, std::int64_t c) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(tag, out + c), hn::Set(tag, keep)), tag, out + c);
  });
}

// Asks for `bytes` bytes of memory in the order of addresses.
HWY_INLINE void prefetch(const void* from, std::int64_t bytes) {
  for (std::int64_t at = 0; at < bytes; at += 64) hwy::Prefetch(static_cast<const std::uint8_t*>(from) + at);
}

template <int kQueries>
HWY_INLINE void block_queries(const AttendCall& call, std::int64_t query, const float* k, std::int64_t begin,
                              std::int64_t tokens) {
  float* scores = call.scratch + query * kAttendBlock;
  score_rows<kQueries>(call.q + query * call.head_dim, k, tokens, call.head_dim, scores);
  for (std::int64_t i = 0; i < kQueries; ++i) {
    const std::int64_t visible = std::clamp<std::int64_t>(call.limit[query + i] - begin, 0, tokens);
    soften(call, query + i, tokens, visible, scores + i * kAttendBlock);
  }
}

// body(number of queries as a constant, first query)
template <class Body>
HWY_INLINE void for_query_tiles(std::int64_t queries, const Body& body) {
  std::int64_t i = 0;
  for (; i + kQueryTile <= queries; i += kQueryTile) body(std::integral_constant<int, kQueryTile>(), i);
  for (; i + 2 <= queries; i += 2) body(std::integral_constant<int, 2>(), i);
  if (i < queries) body(std::integral_constant<int, 1>(), i);
}

template <class T>
void attend_typed(const AttendCall& call) {
  const std::int64_t dim = call.head_dim;
  float* widened = call.scratch + call.queries * kAttendBlock;
  for (std::int64_t begin = call.begin; begin < call.end; begin += kAttendBlock) {
    const std::int64_t tokens = std::min(kAttendBlock, call.end - begin);
    const std::int64_t bytes = tokens * dim * static_cast<std::int64_t>(sizeof(T));
    const T* k = static_cast<const T*>(call.k) + begin * dim;
    const T* v = static_cast<const T*>(call.v) + begin * dim;
    const float* keys = widen(k, tokens, dim, widened);
    prefetch(v, bytes);
    for_query_tiles(call.queries, [&](auto count, std::int64_t query) HWY_ATTR {
      block_queries<decltype(count)::value>(call, query, keys, begin, tokens);
    });
    const float* values = widen(v, tokens, dim, widened);
    if (begin + kAttendBlock < call.end) prefetch(k + kAttendBlock * dim, bytes);
    for_query_tiles(call.queries, [&](auto count, std::int64_t query) HWY_ATTR {
      value_rows<decltype(count)::value>(call.scratch + query * kAttendBlock, values, tokens, dim,
                                         call.out + query * dim);
    });
  }
}

void attend(const AttendCall& call) {
  call.float16 ? attend_typed<std::uint16_t>(call) : attend_typed<float>(call);
}

#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128

// Highway's portable conversion cuts off; this rounds to nearest, ties to even.
std::uint16_t rounded_float16(float x) {
  const auto sign = static_cast<std::uint32_t>(std::signbit(x)) << 15;
  const float size = std::min(std::abs(x), 65504.0F);
  if (!(size >= 6.103515625e-5F)) {  // below the smallest normal number: a multiple of 2^-24
    return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(std::nearbyint(size * 16777216.0F)));
  }
  const auto bits = std::bit_cast<std::uint32_t>(size);
  const std::uint32_t rounded = bits + 0xfffU + ((bits >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded >> 13) - (112U << 10)));
}

void to_float16(const float* x, std::int64_t n, std::uint16_t* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = rounded_float16(x[i]);
}

#else

void to_float16(const float* x, std::int64_t n, std::uint16_t* out) {
  for_lanes(n, [&](auto d, std::int64_t i) HWY_ATTR {
    const hn::Rebind<hwy::float16_t, decltype(d)> narrow;
    const auto largest = hn::Set(d, 65504.0F);
    const auto value = hn::Max(hn::Min(hn::LoadU(d, x + i), largest), hn::Neg(largest));
    hn::StoreU(hn::DemoteTo(narrow, value), narrow, reinterpret_cast<hwy::float16_t*>(out) + i);
  });
}

#endif

void fill(Kernels& kernels) {
  kernels.attend = attend;
  kernels.to_float16 = to_float16;
}

}  // namespace
}  // namespace lily::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lily::cpu {
HWY_EXPORT(fill);
void fill_attention_kernels(Kernels& kernels) {
  HWY_DYNAMIC_DISPATCH(fill)(kernels);
}
}  // namespace lily::cpu
#endif
