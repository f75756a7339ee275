// Softmax attention over one range of tokens from scratch: all scores, their maximum, the weights and their sum; then
// the weighted values. Keys and values are float32 or float16 in the cache; every sum is float32.
//
// The order of every sum depends on the number of tokens and head_dim alone, not on how many queries there are:
// a score has one chain of additions per lane over head_dim, then a tree over the lanes; the sum of weights four chains
// (of the tokens t mod 4); a weighted value one chain over the tokens.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/kernels_attention.cpp"  // NOLINT
#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "ops/cpu/kernel_tables.h"
#include "ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lily::cpu::HWY_NAMESPACE {
namespace {

constexpr int kQueryTile = kTileRegisters / 2;
constexpr int kScoreTokens = 2;           // times the queries: the sums of a tile of scores
constexpr int kValueVectors = 2;          // times the queries: the sums of a tile of values
constexpr std::int64_t kAheadTokens = 4;  // of values, between two requests for memory
static_assert(kQueryTile <= kMostQueryTile && kQueryTile % 4 == 0);

template <class D>
HWY_INLINE hn::Vec<D> load_row(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> load_row(D d, const std::uint16_t* from) {
  const hn::Rebind<hwy::float16_t, D> narrow;
  return hn::PromoteTo(d, hn::LoadU(narrow, reinterpret_cast<const hwy::float16_t*>(from)));
}

// Keeps a vector in its register, where GCC would rather load it again for every product: that is one load for one
// multiplication, and loads are what the products wait for.
HWY_INLINE FloatVector in_register(FloatVector v) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
  asm("" : "+v"(v.raw));
#endif
  return v;
}

// 2^x for x <= 0, 0 below the normal numbers. The polynomial's relative error is 2e-9.
template <class D>
HWY_INLINE hn::Vec<D> power_of_two(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> integers;
  const auto magic = hn::Set(d, 12582912.0F);  // 1.5 * 2^23: what is added to it is rounded to an integer
  const auto rounded = hn::Add(x, magic);
  const auto rest = hn::Sub(x, hn::Sub(rounded, magic));
  auto y = hn::Set(d, 1.535336191e-4F);
  y = hn::MulAdd(y, rest, hn::Set(d, 1.339887441e-3F));
  y = hn::MulAdd(y, rest, hn::Set(d, 9.618437358e-3F));
  y = hn::MulAdd(y, rest, hn::Set(d, 5.550332471e-2F));
  y = hn::MulAdd(y, rest, hn::Set(d, 2.402264791e-1F));
  y = hn::MulAdd(y, rest, hn::Set(d, 6.931472029e-1F));
  y = hn::MulAdd(y, rest, hn::Set(d, 1.0F));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(integers, rounded));
  const auto scaled = hn::BitCast(d, hn::Add(hn::BitCast(integers, y), exponent));
  return hn::IfThenElseZero(hn::Ge(x, hn::Set(d, -126.0F)), scaled);
}

// Asks for memory in the order of addresses, some lines at a time.
class Ahead {
 public:
  Ahead(std::span<const std::byte> bytes, std::int64_t steps)
      : at_(reinterpret_cast<const std::uint8_t*>(bytes.data())),
        left_((static_cast<std::int64_t>(bytes.size()) + 63) / 64),
        step_((left_ + steps - 1) / steps) {}
  HWY_INLINE void step() {
    const std::int64_t lines = HWY_MIN(left_, step_);
    for (std::int64_t i = 0; i < lines; ++i) hwy::Prefetch(at_ + 64 * i);
    at_ += 64 * lines;
    left_ -= lines;
  }

 private:
  const std::uint8_t* at_;
  std::int64_t left_;  // lines
  std::int64_t step_;
};

// scores[t][i] for kQueries queries and kTokens tokens; what follows them in a row of kQueryTile may be overwritten.
template <int kQueries, int kTokens, class T>
HWY_INLINE void score_tile(const float* q, const T* k, std::int64_t head_dim, float* scores) {
  const FloatTag d;
  constexpr int kPadded = (kQueries + 3) / 4 * 4;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  FloatVector sums[kTokens][kPadded];
  for (int t = 0; t < kTokens; ++t) {
    for (int i = 0; i < kPadded; ++i) sums[t][i] = hn::Zero(d);
  }
  std::int64_t c = 0;
  for (; c + lanes <= head_dim; c += lanes) {
    FloatVector keys[kTokens];
    for (int t = 0; t < kTokens; ++t) keys[t] = load_row(d, k + t * head_dim + c);
    for (int i = 0; i < kQueries; ++i) {
      const FloatVector query = in_register(hn::LoadU(d, q + i * head_dim + c));
      for (int t = 0; t < kTokens; ++t) sums[t][i] = hn::MulAdd(query, keys[t], sums[t][i]);
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    for (int i = 0; i < kPadded; i += 4) sums_of_four(sums[t] + i, scores + t * kQueryTile + i);
  }
  const hn::CappedTag<float, 1> one;
  for (; c < head_dim; ++c) {
    for (int t = 0; t < kTokens; ++t) {
      for (int i = 0; i < kQueries; ++i) {
        float* score = scores + t * kQueryTile + i;
        const auto query = hn::LoadU(one, q + i * head_dim + c);
        hn::StoreU(hn::MulAdd(query, load_row(one, k + t * head_dim + c), hn::LoadU(one, score)), one, score);
      }
    }
  }
}

// Turns the scores [tokens][kQueryTile] into weights.
HWY_INLINE void soften(std::int64_t tokens, float* scores, float* maximum, float* sum) {
  using Tag = hn::CappedTag<float, kQueryTile>;
  using V = hn::Vec<Tag>;
  const Tag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < kQueryTile; i += lanes) {
    V most = hn::LoadU(d, scores + i);
    for (std::int64_t t = 1; t < tokens; ++t) most = hn::Max(most, hn::LoadU(d, scores + t * kQueryTile + i));
    hn::StoreU(most, d, maximum + i);
    V sums[4] = {hn::Zero(d), hn::Zero(d), hn::Zero(d), hn::Zero(d)};
    const auto weigh = [&](std::int64_t t, V& chain) HWY_ATTR {
      float* at = scores + t * kQueryTile + i;
      const V weight = power_of_two(d, hn::Sub(hn::LoadU(d, at), most));
      hn::StoreU(weight, d, at);
      chain = hn::Add(chain, weight);
    };
    std::int64_t t = 0;
    for (; t + 4 <= tokens; t += 4) {
      for (int j = 0; j < 4; ++j) weigh(t + j, sums[j]);
    }
    for (int j = 0; j < 3; ++j) {
      if (t + j < tokens) weigh(t + j, sums[j]);
    }
    hn::StoreU(hn::Add(hn::Add(sums[0], sums[1]), hn::Add(sums[2], sums[3])), d, sum + i);
  }
}

// out[i] = sum_t weights[t][i] * v[t], over kVectors vectors of the head.
template <int kQueries, int kVectors, class D, class T>
HWY_INLINE void value_tile(D d, const float* weights, const T* v, std::int64_t tokens, std::int64_t head_dim,
                           float* out, Ahead& ahead) {
  using V = hn::Vec<D>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  V sums[kQueries][kVectors];
  for (int i = 0; i < kQueries; ++i) {
    for (int j = 0; j < kVectors; ++j) sums[i][j] = hn::Zero(d);
  }
  for (std::int64_t begin = 0; begin < tokens; begin += kAheadTokens) {
    ahead.step();
    const std::int64_t end = HWY_MIN(tokens, begin + kAheadTokens);
    for (std::int64_t t = begin; t < end; ++t) {
      V values[kVectors];
      for (int j = 0; j < kVectors; ++j) values[j] = load_row(d, v + t * head_dim + j * lanes);
      for (int i = 0; i < kQueries; ++i) {
        const V weight = hn::Set(d, weights[t * kQueryTile + i]);
        for (int j = 0; j < kVectors; ++j) sums[i][j] = hn::MulAdd(weight, values[j], sums[i][j]);
      }
    }
  }
  for (int i = 0; i < kQueries; ++i) {
    for (int j = 0; j < kVectors; ++j) hn::StoreU(sums[i][j], d, out + i * head_dim + j * lanes);
  }
}

template <int kQueries, class T>
HWY_INLINE void score_rows(const AttendScoresCall& call, std::int64_t query, float* scores) {
  const std::int64_t dim = call.head_dim;
  const float* q = call.q + query * dim;
  const T* k = static_cast<const T*>(call.k);
  Ahead ahead(query == 0 ? call.ahead : std::span<const std::byte>(), (call.tokens + kScoreTokens - 1) / kScoreTokens);
  std::int64_t t = 0;
  for (; t + kScoreTokens <= call.tokens; t += kScoreTokens) {
    ahead.step();
    score_tile<kQueries, kScoreTokens>(q, k + t * dim, dim, scores + t * kQueryTile);
  }
  for (; t < call.tokens; ++t) score_tile<kQueries, 1>(q, k + t * dim, dim, scores + t * kQueryTile);
  float maximum[kQueryTile];
  float sum[kQueryTile];
  soften(call.tokens, scores, maximum, sum);
  std::copy_n(maximum, kQueries, call.maximum + query);
  std::copy_n(sum, kQueries, call.sum + query);
}

template <int kQueries, class T>
HWY_INLINE void value_rows(const AttendValuesCall& call, std::int64_t query, const float* weights) {
  const FloatTag d;
  const std::int64_t dim = call.head_dim;
  const T* v = static_cast<const T*>(call.v);
  float* out = call.out + query * dim;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const std::int64_t steps = (call.tokens + kAheadTokens - 1) / kAheadTokens;
  Ahead ahead(query == 0 ? call.ahead : std::span<const std::byte>(),
              HWY_MAX(dim / (kValueVectors * lanes), 1) * steps);
  std::int64_t c = 0;
  for (; c + kValueVectors * lanes <= dim; c += kValueVectors * lanes) {
    value_tile<kQueries, kValueVectors>(d, weights, v + c, call.tokens, dim, out + c, ahead);
  }
  for (; c + lanes <= dim; c += lanes) value_tile<kQueries, 1>(d, weights, v + c, call.tokens, dim, out + c, ahead);
  const hn::CappedTag<float, 1> one;
  for (; c < dim; ++c) value_tile<kQueries, 1>(one, weights, v + c, call.tokens, dim, out + c, ahead);
}

// body(number of queries as a constant, first query, its tile's weights)
template <class Float, class Body>
HWY_INLINE void for_query_tiles(std::int64_t queries, Float* weights, const Body& body) {
  std::int64_t i = 0;
  for (; i + kQueryTile <= queries; i += kQueryTile, weights += kQueryTile * kAttendRange) {
    body(std::integral_constant<int, kQueryTile>(), i, weights);
  }
  for (; i < queries; ++i, weights += kQueryTile * kAttendRange) body(std::integral_constant<int, 1>(), i, weights);
}

void attend_scores(const AttendScoresCall& call) {
  for_query_tiles(call.queries, call.weights, [&](auto count, std::int64_t query, float* weights) HWY_ATTR {
    constexpr int kQueries = decltype(count)::value;
    if (call.float16) {
      score_rows<kQueries, std::uint16_t>(call, query, weights);
    } else {
      score_rows<kQueries, float>(call, query, weights);
    }
  });
}

void attend_values(const AttendValuesCall& call) {
  for_query_tiles(call.queries, call.weights, [&](auto count, std::int64_t query, const float* weights) HWY_ATTR {
    constexpr int kQueries = decltype(count)::value;
    if (call.float16) {
      value_rows<kQueries, std::uint16_t>(call, query, weights);
    } else {
      value_rows<kQueries, float>(call, query, weights);
    }
  });
}

void join_attended(const Attended& next, std::int64_t queries, std::int64_t head_dim, const Attended& all) {
  const hn::CappedTag<float, 1> one;
  for (std::int64_t q = 0; q < queries; ++q) {
    const float maximum = HWY_MAX(all.maximum[q], next.maximum[q]);
    const float keep = hn::GetLane(power_of_two(one, hn::Set(one, all.maximum[q] - maximum)));
    const float take = hn::GetLane(power_of_two(one, hn::Set(one, next.maximum[q] - maximum)));
    all.maximum[q] = maximum;
    const auto sum = hn::Mul(hn::Set(one, all.sum[q]), hn::Set(one, keep));
    all.sum[q] = hn::GetLane(hn::MulAdd(hn::Set(one, next.sum[q]), hn::Set(one, take), sum));
    float* out = all.out + q * head_dim;
    const float* more = next.out + q * head_dim;
    for_lanes(head_dim, [&](auto d, std::int64_t c) HWY_ATTR {
      const auto kept = hn::Mul(hn::LoadU(d, out + c), hn::Set(d, keep));
      hn::StoreU(hn::MulAdd(hn::LoadU(d, more + c), hn::Set(d, take), kept), d, out + c);
    });
  }
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

void from_float16(const std::uint16_t* x, std::int64_t n, float* out) {
  for_lanes(n, [&](auto d, std::int64_t i) HWY_ATTR { hn::StoreU(load_row(d, x + i), d, out + i); });
}

void fill(Kernels& kernels) {
  kernels.attend_scores = attend_scores;
  kernels.attend_values = attend_values;
  kernels.join_attended = join_attended;
  kernels.to_float16 = to_float16;
  kernels.from_float16 = from_float16;
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
