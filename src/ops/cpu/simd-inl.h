// Shared by the kernels of every instruction set; included once per target by Highway's foreach_target. Not a header
// for anyone else.
#if defined(LILY_OPS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LILY_OPS_CPU_SIMD_INL_H_
#undef LILY_OPS_CPU_SIMD_INL_H_
#else
#define LILY_OPS_CPU_SIMD_INL_H_
#endif

#include <cstdint>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "support/bfloat16.h"

HWY_BEFORE_NAMESPACE();
namespace lily::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using FloatVector = hn::Vec<FloatTag>;

// Vectors that stay live in a tile: 32 registers with AVX-512 and NEON, 16 otherwise.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
inline constexpr int kTileRegisters = 8;
#else
inline constexpr int kTileRegisters = 16;
#endif

HWY_INLINE float sum_of(FloatTag d, FloatVector v) {
  return hn::GetLane(hn::SumOfLanes(d, v));
}

#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
// The sums over lanes of four vectors.
HWY_INLINE void sums_of_four(const FloatVector* v, float* out) {
  const FloatTag d;
  const hn::Repartition<double, FloatTag> dd;
  const auto a = hn::BitCast(dd, hn::Add(hn::InterleaveLower(d, v[0], v[1]), hn::InterleaveUpper(d, v[0], v[1])));
  const auto b = hn::BitCast(dd, hn::Add(hn::InterleaveLower(d, v[2], v[3]), hn::InterleaveUpper(d, v[2], v[3])));
  const auto four =
      hn::Add(hn::BitCast(d, hn::InterleaveLower(dd, a, b)), hn::BitCast(d, hn::InterleaveUpper(dd, a, b)));
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  const hn::Half<FloatTag> half;
  const hn::Half<decltype(half)> quarter;
  const auto two = hn::Add(hn::LowerHalf(half, four), hn::UpperHalf(half, four));
  hn::StoreU(hn::Add(hn::LowerHalf(quarter, two), hn::UpperHalf(quarter, two)), quarter, out);
#elif HWY_TARGET == HWY_AVX2
  const hn::Half<FloatTag> half;
  hn::StoreU(hn::Add(hn::LowerHalf(half, four), hn::UpperHalf(half, four)), half, out);
#else
  hn::StoreU(four, d, out);
#endif
}
#else
HWY_INLINE void sums_of_four(const FloatVector* v, float* out) {
  for (int i = 0; i < 4; ++i) out[i] = sum_of(FloatTag(), v[i]);
}
#endif

template <class D, class V>
HWY_INLINE V sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0F);
  const V exponent = hn::Min(hn::Neg(x), hn::Set(d, 88.0F));  // Exp is not defined where it overflows
  return hn::Div(one, hn::Add(one, hn::Exp(d, exponent)));
}

template <class D>
HWY_INLINE hn::Vec<D> load_bfloat16(D d, const BFloat16* from) {
  const hn::Rebind<std::uint16_t, D> narrow;
  const hn::RebindToUnsigned<D> wide;
  const auto bits = hn::LoadU(narrow, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(wide, bits)));
}

/// body(tag, i) for i in steps of whole vectors, then lane by lane.
template <class Body>
HWY_INLINE void for_lanes(std::int64_t n, const Body& body) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) body(d, i);
  const hn::CappedTag<float, 1> one;
  for (; i < n; ++i) body(one, i);
}

HWY_INLINE float dot(const float* a, const float* b, std::int64_t n) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  FloatVector sum0 = hn::Zero(d);
  FloatVector sum1 = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    sum0 = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum0);
    sum1 = hn::MulAdd(hn::LoadU(d, a + i + lanes), hn::LoadU(d, b + i + lanes), sum1);
  }
  float rest = 0;
  for (; i < n; ++i) rest += a[i] * b[i];
  return sum_of(d, hn::Add(sum0, sum1)) + rest;
}

}  // namespace lily::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
