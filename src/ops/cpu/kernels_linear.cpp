// Linear maps with float32 activations: every weight is widened to float32 (scale * code + bias), nothing is rounded
// but the sums.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/kernels_linear.cpp"  // NOLINT
#include <cstring>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "ops/cpu/kernel_tables.h"
#include "ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lily::cpu::HWY_NAMESPACE {
namespace {

using IntTag = hn::RebindToSigned<FloatTag>;
using WordTag = hn::RebindToUnsigned<FloatTag>;
using WordVector = hn::Vec<WordTag>;

constexpr std::int64_t kStripRows = 4;    // weight rows at a time
constexpr std::int64_t kCachedRows = 32;  // of activations

// 4-bit codes of one group, as many at a time as a vector has lanes: every lane gets the word that holds its code,
// shifts it down and masks.
HWY_INLINE void dequantize_group4(const std::uint8_t* codes, int group, float scale, float bias, float* out) {
  const FloatTag d;
  const WordTag du;
  const IntTag di;
  const auto lanes = static_cast<int>(hn::Lanes(d));
  const WordVector shift = hn::And(hn::ShiftLeft<2>(hn::Iota(du, 0)), hn::Set(du, 28U));
  const WordVector mask = hn::Set(du, 15U);
  const FloatVector scales = hn::Set(d, scale);
  const FloatVector biases = hn::Set(d, bias);
  for (int i = 0; i < group; i += lanes) {
    WordVector words;
    std::uint32_t low = 0;
    std::memcpy(&low, codes + i / 8 * 4, 4);
    low >>= 4 * (i % 8);  // vectors of fewer than eight lanes take a word in parts
#if HWY_TARGET <= HWY_AVX3
    std::uint32_t high = 0;
    std::memcpy(&high, codes + i / 2 + 4, 4);
    const hn::Half<WordTag> half;
    words = hn::Combine(du, hn::Set(half, high), hn::Set(half, low));
#else
    words = hn::Set(du, low);
#endif
    const auto code = hn::And(hn::Shr(words, shift), mask);
    hn::StoreU(hn::MulAdd(hn::ConvertTo(d, hn::BitCast(di, code)), scales, biases), d, out + i);
  }
}

HWY_INLINE void dequantize_group8(const std::uint8_t* codes, int group, float scale, float bias, float* out) {
  for_lanes(group, [&](auto d, std::int64_t i) HWY_ATTR {
    const hn::Rebind<std::uint8_t, decltype(d)> narrow;
    const auto code = hn::ConvertTo(d, hn::PromoteTo(hn::RebindToSigned<decltype(d)>(), hn::LoadU(narrow, codes + i)));
    hn::StoreU(hn::MulAdd(code, hn::Set(d, scale), hn::Set(d, bias)), d, out + i);
  });
}

void dequantize(const QuantRows& weight, std::int64_t row, float* out) {
  const std::uint8_t* codes = weight.codes + row * weight.row_bytes();
  const BFloat16* scales = weight.scales + row * weight.groups();
  const BFloat16* biases = weight.biases + row * weight.groups();
  const int group_bytes = weight.group * weight.bits / 8;
  for (std::int64_t g = 0; g < weight.groups(); ++g, codes += group_bytes, out += weight.group) {
    const auto scale = static_cast<float>(scales[g]);
    const auto bias = static_cast<float>(biases[g]);
    if (weight.bits == 4) {
      dequantize_group4(codes, weight.group, scale, bias, out);
    } else {
      dequantize_group8(codes, weight.group, scale, bias, out);
    }
  }
}

// kRows weight rows times kM activation rows, all sums in registers. n is a multiple of the lanes.
template <int kRows, int kM>
HWY_INLINE void tile(const float* weights, std::int64_t n, const float* const* x, const LinearCall& call,
                     std::int64_t row, std::int64_t m) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  FloatVector sums[kRows][kM];
  for (int r = 0; r < kRows; ++r) {
    for (int j = 0; j < kM; ++j) sums[r][j] = hn::Zero(d);
  }
  for (std::int64_t i = 0; i < n; i += lanes) {
    FloatVector inputs[kM];
    for (int j = 0; j < kM; ++j) inputs[j] = hn::LoadU(d, x[j] + i);
    for (int r = 0; r < kRows; ++r) {
      const FloatVector w = hn::LoadU(d, weights + r * n + i);
      for (int j = 0; j < kM; ++j) sums[r][j] = hn::MulAdd(w, inputs[j], sums[r][j]);
    }
  }
  for (int j = 0; j < kM; ++j) {
    float* out = call.out + (m + j) * call.out_stride + row;
    for (int r = 0; r < kRows; ++r) out[r] = sum_of(d, sums[r][j]) + (call.add ? out[r] : 0.0F);
  }
}

// kRows weight rows times activation rows [m, end).
template <int kRows>
HWY_INLINE void strip(const float* weights, const LinearCall& call, std::int64_t row, std::int64_t m,
                      std::int64_t end) {
  constexpr int kM = kTileRegisters / kStripRows;
  const auto x_row = [&](std::int64_t at) { return call.x + (call.index ? call.index[at] : at) * call.x_stride; };
  for (; m + kM <= end; m += kM) {
    const float* x[kM];
    for (int j = 0; j < kM; ++j) x[j] = x_row(m + j);
    tile<kRows, kM>(weights, call.weight->in, x, call, row, m);
  }
  for (; m < end; ++m) {
    const float* x[1] = {x_row(m)};
    tile<kRows, 1>(weights, call.weight->in, x, call, row, m);
  }
}

// One row of activations and 8-bit codes (the router, of every token): weights are widened in registers, with the same
// sums as tile().
template <int kRows>
HWY_INLINE void byte_rows(const LinearCall& call, const float* x, std::int64_t row) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  const hn::Rebind<std::uint8_t, FloatTag> narrow;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const QuantRows& weight = *call.weight;
  const std::int64_t first = call.begin + row;
  const std::uint8_t* codes = weight.codes + first * weight.in;
  FloatVector sums[kRows];
  for (int r = 0; r < kRows; ++r) sums[r] = hn::Zero(d);
  for (std::int64_t g = 0; g < weight.groups(); ++g) {
    FloatVector scale[kRows], bias[kRows];
    for (int r = 0; r < kRows; ++r) {
      scale[r] = hn::Set(d, static_cast<float>(weight.scales[(first + r) * weight.groups() + g]));
      bias[r] = hn::Set(d, static_cast<float>(weight.biases[(first + r) * weight.groups() + g]));
    }
    for (std::int64_t i = g * weight.group; i < (g + 1) * weight.group; i += lanes) {
      const FloatVector input = hn::LoadU(d, x + i);
      for (int r = 0; r < kRows; ++r) {
        const auto code = hn::PromoteTo(di, hn::LoadU(narrow, codes + r * weight.in + i));
        sums[r] = hn::MulAdd(hn::MulAdd(hn::ConvertTo(d, code), scale[r], bias[r]), input, sums[r]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    float& out = call.out[row + r];
    out = sum_of(d, sums[r]) + (call.add ? out : 0.0F);
  }
}

void byte_rows_of_one(const LinearCall& call) {
  const float* x = call.x + (call.index ? call.index[0] : 0) * call.x_stride;
  std::int64_t row = 0;
  for (; row + kStripRows <= call.rows; row += kStripRows) byte_rows<kStripRows>(call, x, row);
  for (; row < call.rows; ++row) byte_rows<1>(call, x, row);
}

void linear(const LinearCall& call) {
  const std::int64_t in = call.weight->in;
  if (call.m == 1 && call.weight->bits == 8 && call.weight->group % static_cast<int>(hn::Lanes(FloatTag())) == 0) {
    return byte_rows_of_one(call);
  }
  for (std::int64_t first = 0; first < call.rows; first += kLinearRows) {
    const std::int64_t count = HWY_MIN(kLinearRows, call.rows - first);
    for (std::int64_t r = 0; r < count; ++r) {
      dequantize(*call.weight, call.begin + first + r, call.scratch + r * in);
    }
    // Some activations at a time stay in the second-level cache for all of the weight rows.
    for (std::int64_t m = 0; m < call.m; m += kCachedRows) {
      const std::int64_t end = HWY_MIN(m + kCachedRows, call.m);
      std::int64_t r = 0;
      for (; r + kStripRows <= count; r += kStripRows)
        strip<kStripRows>(call.scratch + r * in, call, first + r, m, end);
      for (; r < count; ++r) strip<1>(call.scratch + r * in, call, first + r, m, end);
    }
  }
}

void fill(Kernels& kernels) {
  kernels.dequantize = dequantize;
  kernels.linear = linear;
}

}  // namespace
}  // namespace lily::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lily::cpu {
HWY_EXPORT(fill);
void fill_linear_kernels(Kernels& kernels) {
  HWY_DYNAMIC_DISPATCH(fill)(kernels);
}
}  // namespace lily::cpu
#endif
