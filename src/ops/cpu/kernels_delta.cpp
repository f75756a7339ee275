// Gated delta net: the causal convolution and the delta rule.
//
// The state is kept as S[k][v], so that the sums over k need no sums across lanes: lanes are values. A block of columns
// is carried through all tokens of the call before the next one, so it stays in the first-level cache. Four tokens are
// taken at once: with s the product of the decays up to token n and u' = u / s, the true state before token n is
// s / g_n (S + sum of u'_m k_m^T over the tokens m before it), so the products of all four with S are made in one pass,
// and
//     u_n = beta_n (v_n - s (k_n S + sum of (k_n . k_m) u'_m)),    y_n = s (q_n S + sum of (q_n . k_m) u'_m) + (q_n .
//     k_n) u_n.
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

constexpr int kTokens = 4;                              // taken at once
constexpr int kVectors = kTileRegisters == 16 ? 2 : 1;  // of values: a block
constexpr float kSmallestScale = 1e-12F;                // the stored state may be so many times the true one

// Products of a token's key and of its query with the keys of the token itself [0] and of those before it.
struct TokenProducts {
  float kk[kTokens];
  float kq[kTokens];
};

HWY_INLINE const float* key(const DeltaCall& call, std::int64_t t) {
  return call.k + t * call.key_dim;
}
HWY_INLINE const float* query(const DeltaCall& call, std::int64_t t) {
  return call.q + t * call.key_dim;
}

// One block of columns of the state: `place(i)` is row i. What is stored is the true state divided by `scale`, the
// decays since they were last multiplied in, less the `pending` rank-one updates of the last four tokens: they are
// added when the next pass over the state is made anyway. So four tokens cost one load and one store of the state.
template <int kV, class D>
struct Block {
  using V = hn::Vec<D>;

  Block(D tag, const DeltaCall& delta_call, std::int64_t first) : d(tag), call(delta_call), column(first) {}

  float* place(std::int64_t i, int j) const {
    return call.state + i * call.value_dim + column + j * static_cast<std::int64_t>(hn::Lanes(d));
  }
  V value(std::int64_t t, int j) const {
    return hn::LoadU(d, call.v + t * call.v_stride + column + j * static_cast<std::int64_t>(hn::Lanes(d)));
  }
  void give(std::int64_t t, int j, V y) const {
    hn::StoreU(y, d, call.y + t * call.y_stride + column + j * static_cast<std::int64_t>(hn::Lanes(d)));
  }

  // The pending updates at row i of the state.
  HWY_INLINE V with_pending(V s, std::int64_t i, int j) const {
    for (int n = 0; n < kTokens; ++n) s = hn::MulAdd(u[n][j], hn::Set(d, key(call, pending_token + n)[i]), s);
    return s;
  }

  // Makes what is stored the true state.
  void settle() {
    const V factor = hn::Set(d, scale);
    for (std::int64_t i = 0; i < call.key_dim; ++i) {
      for (int j = 0; j < kV; ++j) {
        V s = hn::LoadU(d, place(i, j));
        if (pending) s = with_pending(s, i, j);
        hn::StoreU(hn::Mul(s, factor), d, place(i, j));
      }
    }
    pending = false;
    scale = 1.0F;
  }

  // One token, the state settled before and after.
  void one_token(std::int64_t t, float kq) {
    V ks[kV], qs[kV];
    for (int j = 0; j < kV; ++j) ks[j] = qs[j] = hn::Zero(d);
    for (std::int64_t i = 0; i < call.key_dim; ++i) {
      for (int j = 0; j < kV; ++j) {
        const V s = hn::LoadU(d, place(i, j));
        ks[j] = hn::MulAdd(s, hn::Set(d, key(call, t)[i]), ks[j]);
        qs[j] = hn::MulAdd(s, hn::Set(d, query(call, t)[i]), qs[j]);
      }
    }
    const V g = hn::Set(d, call.decay[t]);
    V change[kV];
    for (int j = 0; j < kV; ++j) {
      change[j] = hn::Mul(hn::Set(d, call.beta[t]), hn::NegMulAdd(g, ks[j], value(t, j)));
      give(t, j, hn::MulAdd(hn::Set(d, kq), change[j], hn::Mul(g, qs[j])));
    }
    for (std::int64_t i = 0; i < call.key_dim; ++i) {
      const V k = hn::Set(d, key(call, t)[i]);
      for (int j = 0; j < kV; ++j) {
        hn::StoreU(hn::MulAdd(change[j], k, hn::Mul(g, hn::LoadU(d, place(i, j)))), d, place(i, j));
      }
    }
  }

  // Products of four tokens' keys and queries with the stored state, once the pending updates are in it.
  template <bool kPending>
  HWY_INLINE void pass(std::int64_t t, V (&ks)[kTokens][kV], V (&qs)[kTokens][kV]) {
    for (int n = 0; n < kTokens; ++n) {
      for (int j = 0; j < kV; ++j) ks[n][j] = qs[n][j] = hn::Zero(d);
    }
    for (std::int64_t i = 0; i < call.key_dim; ++i) {
      V s[kV];
      for (int j = 0; j < kV; ++j) {
        s[j] = hn::LoadU(d, place(i, j));
        if (kPending) {
          s[j] = with_pending(s[j], i, j);
          hn::StoreU(s[j], d, place(i, j));
        }
      }
      for (int n = 0; n < kTokens; ++n) {
        const V k = hn::Set(d, key(call, t + n)[i]);
        const V q = hn::Set(d, query(call, t + n)[i]);
        for (int j = 0; j < kV; ++j) {
          ks[n][j] = hn::MulAdd(s[j], k, ks[n][j]);
          qs[n][j] = hn::MulAdd(s[j], q, qs[n][j]);
        }
      }
    }
  }

  void four_tokens(std::int64_t t, const TokenProducts* products) {
    V ks[kTokens][kV], qs[kTokens][kV];
    pending ? pass<true>(t, ks, qs) : pass<false>(t, ks, qs);
    for (int n = 0; n < kTokens; ++n) {
      const TokenProducts& with = products[t + n];
      scale *= call.decay[t + n];
      for (int j = 0; j < kV; ++j) {
        for (int before = 0; before < n; ++before) {
          ks[n][j] = hn::MulAdd(u[before][j], hn::Set(d, with.kk[n - before]), ks[n][j]);
          qs[n][j] = hn::MulAdd(u[before][j], hn::Set(d, with.kq[n - before]), qs[n][j]);
        }
        const V decayed = hn::Set(d, scale);
        const V change = hn::Mul(hn::Set(d, call.beta[t + n]), hn::NegMulAdd(decayed, ks[n][j], value(t + n, j)));
        give(t + n, j, hn::MulAdd(hn::Set(d, with.kq[0]), change, hn::Mul(decayed, qs[n][j])));
        u[n][j] = hn::Mul(change, hn::Set(d, 1.0F / scale));
      }
    }
    pending = true;
    pending_token = t;
  }

  bool may_take_four(std::int64_t t) const {
    if (t + kTokens > call.rows) return false;
    float product = scale;
    for (int n = 0; n < kTokens; ++n) product *= call.decay[t + n];
    return product >= kSmallestScale;
  }

  void run(const TokenProducts* products) {
    for (std::int64_t t = 0; t < call.rows;) {
      if (may_take_four(t)) {
        four_tokens(t, products);
        t += kTokens;
      } else if (pending) {
        settle();  // then perhaps four, from a scale of 1
      } else {
        one_token(t, products[t].kq[0]);
        ++t;
      }
    }
    if (pending) settle();
  }

  D d;
  const DeltaCall& call;
  std::int64_t column;
  float scale = 1.0F;
  bool pending = false;
  std::int64_t pending_token = 0;
  V u[kTokens][kV];
};

// At most kMostRows tokens.
constexpr std::int64_t kMostRows = 64;
void delta_rows(const DeltaCall& call) {
  TokenProducts products[kMostRows];
  for (std::int64_t t = 0; t < call.rows; ++t) {
    for (std::int64_t back = 0; back < kTokens && back <= t; ++back) {
      products[t].kk[back] = back > 0 ? dot(key(call, t), key(call, t - back), call.key_dim) : 0.0F;
      products[t].kq[back] = dot(query(call, t), key(call, t - back), call.key_dim);
    }
  }
  const FloatTag d;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t column = 0;
  for (; column + kVectors * lanes <= call.value_dim; column += kVectors * lanes) {
    Block<kVectors, FloatTag>(d, call, column).run(products);
  }
  for (; column + lanes <= call.value_dim; column += lanes) Block<1, FloatTag>(d, call, column).run(products);
  for (; column < call.value_dim; ++column) Block<1, decltype(one)>(one, call, column).run(products);
}

void delta(const DeltaCall& call) {
  for (std::int64_t t = 0; t < call.rows; t += kMostRows) {
    DeltaCall part = call;
    part.rows = HWY_MIN(kMostRows, call.rows - t);
    part.q += t * call.key_dim;
    part.k += t * call.key_dim;
    part.v += t * call.v_stride;
    part.y += t * call.y_stride;
    part.decay += t;
    part.beta += t;
    delta_rows(part);
  }
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
