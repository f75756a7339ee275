// Softmax attention over blocks of tokens with running maximum and sum (the blocks' order does not matter beyond
// rounding, and no score matrix is ever kept).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/kernels_attention.cpp"  // NOLINT
#include "hwy/foreach_target.h"                             // IWYU pragma: keep
#include "ops/cpu/kernel_tables.h"
#include "ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lily::cpu::HWY_NAMESPACE {
namespace {

constexpr int kQueryTile = 4;
constexpr int kTokenTile = kTileRegisters / kQueryTile;

// scores[i][t] for kQueries queries and kTokens tokens.
template <int kQueries, int kTokens>
HWY_INLINE void score_tile(const float* q, const float* k, std::int64_t head_dim, float* scores) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  FloatVector sums[kQueries][kTokens];
  for (int i = 0; i < kQueries; ++i) {
    for (int t = 0; t < kTokens; ++t) sums[i][t] = hn::Zero(d);
  }
  std::int64_t c = 0;
  for (; c + lanes <= head_dim; c += lanes) {
    FloatVector keys[kTokens];
    for (int t = 0; t < kTokens; ++t) keys[t] = hn::LoadU(d, k + t * head_dim + c);
    for (int i = 0; i < kQueries; ++i) {
      const FloatVector query = hn::LoadU(d, q + i * head_dim + c);
      for (int t = 0; t < kTokens; ++t) sums[i][t] = hn::MulAdd(query, keys[t], sums[i][t]);
    }
  }
  for (int i = 0; i < kQueries; ++i) {
    for (int t = 0; t < kTokens; ++t) {
      float sum = sum_of(d, sums[i][t]);
      for (std::int64_t r = c; r < head_dim; ++r) sum += q[i * head_dim + r] * k[t * head_dim + r];
      scores[i * kAttendBlock + t] = sum;
    }
  }
}

template <int kQueries>
HWY_INLINE void score_rows(const float* q, const float* k, std::int64_t tokens, std::int64_t head_dim, float* scores) {
  std::int64_t t = 0;
  for (; t + kTokenTile <= tokens; t += kTokenTile) {
    score_tile<kQueries, kTokenTile>(q, k + t * head_dim, head_dim, scores + t);
  }
  for (; t < tokens; ++t) score_tile<kQueries, 1>(q, k + t * head_dim, head_dim, scores + t);
}

// Turns the scores of one query into weights exp(score - maximum) and rescales what was summed before.
// Tokens from `visible` on get weight 0.
HWY_INLINE void soften(const AttendCall& call, std::int64_t query, std::int64_t tokens, std::int64_t visible,
                       float* scores) {
  const FloatTag d;
  float maximum = call.maximum[query];
  for (std::int64_t t = 0; t < visible; ++t) maximum = HWY_MAX(maximum, scores[t]);
  const float before = call.maximum[query];
  call.maximum[query] = maximum;
  for_lanes(visible, [&](auto tag, std::int64_t t) HWY_ATTR {
    hn::StoreU(hn::Exp(tag, hn::Sub(hn::LoadU(tag, scores + t), hn::Set(tag, maximum))), tag, scores + t);
  });
  float sum = 0;
  for (std::int64_t t = 0; t < visible; ++t) sum += scores[t];
  for (std::int64_t t = visible; t < tokens; ++t) scores[t] = 0;
  if (maximum == before) {
    call.sum[query] += sum;
    return;
  }
  const float keep = hn::GetLane(hn::Exp(d, hn::Set(d, before - maximum)));
  call.sum[query] = call.sum[query] * keep + sum;
  float* out = call.out + query * call.head_dim;
  for_lanes(call.head_dim, [&](auto tag, std::int64_t c) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(tag, out + c), hn::Set(tag, keep)), tag, out + c);
  });
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
  constexpr int kVectors = kTileRegisters / kQueryTile;
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t c = 0;
  for (; c + kVectors * lanes <= head_dim; c += kVectors * lanes) {
    value_tile<kQueries, kVectors>(d, weights, v + c, tokens, head_dim, out + c);
  }
  for (; c + lanes <= head_dim; c += lanes) value_tile<kQueries, 1>(d, weights, v + c, tokens, head_dim, out + c);
  const hn::CappedTag<float, 1> one;
  for (; c < head_dim; ++c) value_tile<kQueries, 1>(one, weights, v + c, tokens, head_dim, out + c);
}

void attend(const AttendCall& call) {
  const std::int64_t dim = call.head_dim;
  for (std::int64_t begin = call.begin; begin < call.end; begin += kAttendBlock) {
    const std::int64_t tokens = HWY_MIN(kAttendBlock, call.end - begin);
    const float* k = call.k + begin * dim;
    const float* v = call.v + begin * dim;
    for (std::int64_t i = 0; i < call.queries; ++i) {
      const std::int64_t left = call.queries - i;
      float* scores = call.scratch + i * kAttendBlock;
      if (i % kQueryTile == 0 && left >= kQueryTile) {
        score_rows<kQueryTile>(call.q + i * dim, k, tokens, dim, scores);
      } else if (i >= call.queries / kQueryTile * kQueryTile) {
        score_rows<1>(call.q + i * dim, k, tokens, dim, scores);
      }
      const std::int64_t visible = HWY_MIN(HWY_MAX(call.limit[i] - begin, 0), tokens);
      soften(call, i, tokens, visible, scores);
    }
    std::int64_t i = 0;
    for (; i + kQueryTile <= call.queries; i += kQueryTile) {
      value_rows<kQueryTile>(call.scratch + i * kAttendBlock, v, tokens, dim, call.out + i * dim);
    }
    for (; i < call.queries; ++i) value_rows<1>(call.scratch + i * kAttendBlock, v, tokens, dim, call.out + i * dim);
  }
}

void fill(Kernels& kernels) {
  kernels.attend = attend;
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
