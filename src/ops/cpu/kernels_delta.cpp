// Gated delta net: the causal convolution and the delta rule.
//
// The state is kept as S[k][v], so that the sums over k need no sums across lanes: lanes are values. A block of two
// vectors of values is carried through all tokens of the call before the next block, so its columns of the state stay
// in the first-level cache. One pass over the block per token: the update of token t is fused with the two products
// that token t + 1 needs, since with S the state before t + 1, u = beta (v - g (k S)) and y = g (q S) + (q . k) u.
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

// Token t has its products with the state in `ks` and `qs`; gives y and the row u to add.
template <int kVectors, class D, class V>
HWY_INLINE void delta_output(D d, const DeltaCall& call, std::int64_t t, std::int64_t column, const V* ks, const V* qs,
                             V* u) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto g = hn::Set(d, call.decay[t]);
  const auto beta = hn::Set(d, call.beta[t]);
  const auto qk = hn::Set(d, dot(call.q + t * call.key_dim, call.k + t * call.key_dim, call.key_dim));
  for (int j = 0; j < kVectors; ++j) {
    const std::int64_t at = column + j * lanes;
    u[j] = hn::Mul(beta, hn::NegMulAdd(g, ks[j], hn::LoadU(d, call.v + t * call.v_stride + at)));
    hn::StoreU(hn::MulAdd(qk, u[j], hn::Mul(g, qs[j])), d, call.y + t * call.y_stride + at);
  }
}

template <int kVectors, class D>
HWY_INLINE void delta_block(D d, const DeltaCall& call, std::int64_t column) {
  using V = hn::Vec<D>;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  float* state = call.state + column;
  V ks[kVectors], qs[kVectors], u[kVectors];
  for (int j = 0; j < kVectors; ++j) ks[j] = qs[j] = hn::Zero(d);
  for (std::int64_t i = 0; i < call.key_dim; ++i) {
    const V k = hn::Set(d, call.k[i]);
    const V q = hn::Set(d, call.q[i]);
    for (int j = 0; j < kVectors; ++j) {
      const V s = hn::LoadU(d, state + i * call.value_dim + j * lanes);
      ks[j] = hn::MulAdd(s, k, ks[j]);
      qs[j] = hn::MulAdd(s, q, qs[j]);
    }
  }
  for (std::int64_t t = 0; t + 1 < call.rows; ++t) {
    delta_output<kVectors>(d, call, t, column, ks, qs, u);
    const V g = hn::Set(d, call.decay[t]);
    const float* k_now = call.k + t * call.key_dim;
    const float* k_next = k_now + call.key_dim;
    const float* q_next = call.q + (t + 1) * call.key_dim;
    for (int j = 0; j < kVectors; ++j) ks[j] = qs[j] = hn::Zero(d);
    for (std::int64_t i = 0; i < call.key_dim; ++i) {
      const V k0 = hn::Set(d, k_now[i]);
      const V k1 = hn::Set(d, k_next[i]);
      const V q1 = hn::Set(d, q_next[i]);
      for (int j = 0; j < kVectors; ++j) {
        float* place = state + i * call.value_dim + j * lanes;
        const V s = hn::MulAdd(u[j], k0, hn::Mul(g, hn::LoadU(d, place)));
        hn::StoreU(s, d, place);
        ks[j] = hn::MulAdd(s, k1, ks[j]);
        qs[j] = hn::MulAdd(s, q1, qs[j]);
      }
    }
  }
  const std::int64_t last = call.rows - 1;
  delta_output<kVectors>(d, call, last, column, ks, qs, u);
  const V g = hn::Set(d, call.decay[last]);
  for (std::int64_t i = 0; i < call.key_dim; ++i) {
    const V k = hn::Set(d, call.k[last * call.key_dim + i]);
    for (int j = 0; j < kVectors; ++j) {
      float* place = state + i * call.value_dim + j * lanes;
      hn::StoreU(hn::MulAdd(u[j], k, hn::Mul(g, hn::LoadU(d, place))), d, place);
    }
  }
}

void delta(const DeltaCall& call) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t column = 0;
  for (; column + 2 * lanes <= call.value_dim; column += 2 * lanes) delta_block<2>(d, call, column);
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
