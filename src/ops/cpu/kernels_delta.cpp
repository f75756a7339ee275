// Gated delta net: the causal convolution and the delta rule.
//
// The state is kept as S[k][v], so that the sums over k need no sums across lanes: lanes are values. A block of columns
// is carried through all tokens of the call before the next one, so it stays in the first-level cache. One pass over it
// per token updates the state and sums both the token's y and the next token's k S, so that a token gets the same bits
// in any call. Rows of a block lie far apart, where the hardware does not look ahead: software asks for the next block.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/kernels_delta.cpp"  // NOLINT
#include "hwy/foreach_target.h"                         // IWYU pragma: keep
#include "ops/cpu/kernel_tables.h"
#include "ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lily::cpu::HWY_NAMESPACE {
namespace {

HWY_INLINE const float* conv_row(const ConvCall& call, std::int64_t t) {
  return t < 0 ? call.history + (t + call.kernel - 1) * call.history_stride : call.x + t * call.x_stride;
}

// The published kernel size; the taps of neighbouring channels are interleaved.
void conv_silu4(const ConvCall& call) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t c = 0; c + lanes <= call.channels; c += lanes) {
    FloatVector t0, t1, t2, t3;
    hn::LoadInterleaved4(d, call.taps + 4 * c, t0, t1, t2, t3);
    FloatVector x0 = hn::LoadU(d, conv_row(call, -3) + c);
    FloatVector x1 = hn::LoadU(d, conv_row(call, -2) + c);
    FloatVector x2 = hn::LoadU(d, conv_row(call, -1) + c);
    for (std::int64_t t = 0; t < call.rows; ++t) {
      const FloatVector x3 = hn::LoadU(d, conv_row(call, t) + c);
      const FloatVector sum = hn::MulAdd(x3, t3, hn::MulAdd(x2, t2, hn::MulAdd(x1, t1, hn::Mul(x0, t0))));
      hn::StoreU(hn::Mul(sum, sigmoid(d, sum)), d, call.out + t * call.out_stride + c);
      x0 = x1;
      x1 = x2;
      x2 = x3;
    }
  }
}

void conv_silu_general(const ConvCall& call, std::int64_t first_channel) {
  const hn::CappedTag<float, 1> d;
  for (std::int64_t t = 0; t < call.rows; ++t) {
    for (std::int64_t c = first_channel; c < call.channels; ++c) {
      float sum = 0;
      for (std::int64_t j = 0; j < call.kernel; ++j) {
        sum += call.taps[c * call.kernel + j] * conv_row(call, t - (call.kernel - 1) + j)[c];
      }
      const auto value = hn::Set(d, sum);
      hn::StoreU(hn::Mul(value, sigmoid(d, value)), d, call.out + t * call.out_stride + c);
    }
  }
}

void conv_silu(const ConvCall& call) {
  std::int64_t done = 0;
  if (call.kernel == 4) {
    conv_silu4(call);
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(FloatTag()));
    done = call.channels / lanes * lanes;
  }
  if (done < call.channels) conv_silu_general(call, done);
}

// ---- the delta rule ----

constexpr int kVectors = HWY_LANES(float) == 4 ? 4 : 2;  // of values: a block

// Columns of a block that are copied while several tokens change them: rows of the state lie a power of two apart, so
// that few sets of the first-level cache would hold them all.
constexpr std::int64_t kCopyFloats = 4096;
constexpr std::int64_t kCopyRows = 8;  // for fewer tokens copying costs more than it saves

// Columns of the state, one key after another.
struct Columns {
  float* first;
  std::int64_t stride;
  float* at(std::int64_t key) const { return first + key * stride; }
};

// One token's update of kV vectors of columns, read here and written there. ks is k S of the token, then of the next
// one. kLast: there is no next one in the call; the columns that come after these are asked for instead.
template <int kV, bool kLast, class D>
HWY_INLINE void delta_token(D d, const DeltaCall& call, std::int64_t t, std::int64_t column, Columns from, Columns to,
                            hn::Vec<D>* ks) {
  using V = hn::Vec<D>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const float* key = call.k + t * call.key_dim;
  const float* query = call.q + t * call.key_dim;
  const std::int64_t after = column + kV * lanes;
  const float* ahead =
      call.state + (after < call.value_dim ? after : call.key_dim * call.value_dim);  // the next head's
  const V g = hn::Set(d, call.decay[t]);
  V u[kV], y[kV];
  for (int j = 0; j < kV; ++j) {
    const V v = hn::LoadU(d, call.v + t * call.v_stride + column + j * lanes);
    u[j] = hn::Mul(hn::Set(d, call.beta[t]), hn::NegMulAdd(g, ks[j], v));
    y[j] = ks[j] = hn::Zero(d);
  }
  for (std::int64_t i = 0; i < call.key_dim; ++i) {
    const V k = hn::Set(d, key[i]);
    const V q = hn::Set(d, query[i]);
    for (int j = 0; j < kV; ++j) {
      const V s = hn::MulAdd(u[j], k, hn::Mul(g, hn::LoadU(d, from.at(i) + j * lanes)));
      hn::StoreU(s, d, to.at(i) + j * lanes);
      y[j] = hn::MulAdd(s, q, y[j]);
      if constexpr (kLast) {
        __builtin_prefetch(ahead + i * call.value_dim + j * lanes, 0, 2);
      } else {
        ks[j] = hn::MulAdd(s, hn::Set(d, key[call.key_dim + i]), ks[j]);
      }
    }
  }
  for (int j = 0; j < kV; ++j) hn::StoreU(y[j], d, call.y + t * call.y_stride + column + j * lanes);
}

// kV vectors of columns, all tokens.
template <int kV, class D>
HWY_INLINE void delta_block(D d, const DeltaCall& call, std::int64_t column) {
  using V = hn::Vec<D>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  alignas(64) float copy[kCopyFloats];
  const bool copied = call.rows >= kCopyRows && call.key_dim * kV * lanes <= kCopyFloats;
  const Columns state{call.state + column, call.value_dim};
  const Columns work = copied ? Columns{copy, kV * lanes} : state;
  V ks[kV];  // k S of the coming token
  for (int j = 0; j < kV; ++j) ks[j] = hn::Zero(d);
  for (std::int64_t i = 0; i < call.key_dim; ++i) {
    const V k = hn::Set(d, call.k[i]);
    for (int j = 0; j < kV; ++j) {
      const V s = hn::LoadU(d, state.at(i) + j * lanes);
      if (copied) hn::StoreU(s, d, work.at(i) + j * lanes);
      ks[j] = hn::MulAdd(s, k, ks[j]);
    }
  }
  for (std::int64_t t = 0; t + 1 < call.rows; ++t) delta_token<kV, false>(d, call, t, column, work, work, ks);
  delta_token<kV, true>(d, call, call.rows - 1, column, work, state, ks);
}

void delta(const DeltaCall& call) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t column = 0;
  for (; column + kVectors * lanes <= call.value_dim; column += kVectors * lanes) {
    delta_block<kVectors>(d, call, column);
  }
  for (; column + lanes <= call.value_dim; column += lanes) delta_block<1>(d, call, column);
  const hn::CappedTag<float, 1> one;
  for (; column < call.value_dim; ++column) delta_block<1>(one, call, column);
}

void fill(Kernels& kernels) {
  kernels.conv_silu = conv_silu;
  kernels.delta = delta;
}

}  // namespace
}  // namespace lily::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lily::cpu {
HWY_EXPORT(fill);
void fill_delta_kernels(Kernels& kernels) {
  HWY_DYNAMIC_DISPATCH(fill)(kernels);
}
}  // namespace lily::cpu
#endif
