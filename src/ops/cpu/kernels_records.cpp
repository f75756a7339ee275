// Activations to records (records.h).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/kernels_records.cpp"  // NOLINT
#include <algorithm>
#include <cmath>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "ops/cpu/integer-inl.h"
#include "ops/cpu/kernel_tables.h"
#include "ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lily::cpu::HWY_NAMESPACE {
namespace {

#if LILY_INTEGER_SIMD

using SmallTag = hn::Rebind<std::int8_t, FloatTag>;

// Values of one parity, a vector of floats at a time, as one or two planes of bytes.
template <int kPlanes>
HWY_INLINE SumVector put(FloatVector x, FloatVector inverse, std::uint8_t* high, std::int64_t low_offset) {
  const FloatTag d;
  const SmallTag small;
  const FloatVector limit = hn::Set(d, kPlanes == 2 ? 32639.0F : 127.0F);
  // Infinities stay in range.
  const SumVector q = hn::NearestInt(hn::Max(hn::Min(hn::Mul(x, inverse), limit), hn::Neg(limit)));
  if (kPlanes == 1) {
    hn::StoreU(hn::DemoteTo(small, q), small, reinterpret_cast<std::int8_t*>(high));
    return q;
  }
  const SumVector upper = hn::ShiftRight<8>(hn::Add(q, hn::Set(SumTag(), 128)));
  hn::StoreU(hn::DemoteTo(small, upper), small, reinterpret_cast<std::int8_t*>(high));
  hn::StoreU(hn::DemoteTo(small, hn::Sub(q, hn::ShiftLeft<8>(upper))), small,
             reinterpret_cast<std::int8_t*>(high + low_offset));
  return q;
}

template <int kPlanes>
HWY_INLINE void quantize_group(const float* x, std::int64_t group, const RecordLayout& layout, std::uint8_t* record) {
  const FloatTag d;
  constexpr std::int64_t kLanes = HWY_LANES(float);
  FloatVector most_of = hn::Zero(d);
  for (std::int64_t i = 0; i < kRecordGroup; i += kLanes) most_of = hn::Max(most_of, hn::Abs(hn::LoadU(d, x + i)));
  const float most = hn::GetLane(hn::MaxOfLanes(d, most_of));
  const float limit = kPlanes == 2 ? 32639.0F : 127.0F;
  const FloatVector inverse = hn::Set(d, most > 0 ? limit / most : 0.0F);
  std::uint8_t* plane = record + even_offset(group);
  SumVector sum = hn::Zero(SumTag());
  for (std::int64_t i = 0; i < kRecordGroup / 2; i += kLanes) {
    FloatVector even, odd;
    hn::LoadInterleaved2(d, x + 2 * i, even, odd);
    sum = hn::Add(sum, put<kPlanes>(even, inverse, plane + i, layout.low_offset()));
    sum = hn::Add(sum, put<kPlanes>(odd, inverse, plane + kOddOffset + i, layout.low_offset()));
  }
  const float scale = most / limit;
  const auto total = static_cast<float>(hn::GetLane(hn::SumOfLanes(SumTag(), sum)));
  reinterpret_cast<float*>(record + layout.scale_offset())[group] = scale;
  reinterpret_cast<float*>(record + layout.sum_offset())[group] = scale * total;
}

#else

template <int kPlanes>
void quantize_group(const float* x, std::int64_t group, const RecordLayout& layout, std::uint8_t* record) {
  const float limit = kPlanes == 2 ? 32639.0F : 127.0F;
  float most = 0;
  for (int i = 0; i < kRecordGroup; ++i) most = std::max(most, std::abs(x[i]));
  const float inverse = most > 0 ? limit / most : 0.0F;
  std::int32_t sum = 0;
  for (int i = 0; i < kRecordGroup; ++i) {
    const float value = x[i] * inverse;  // not a number after an infinity: the group's scale is one too
    const auto q = static_cast<std::int32_t>(std::nearbyint(value == value ? std::clamp(value, -limit, limit) : 0.0F));
    const std::int32_t upper = kPlanes == 2 ? (q + 128) >> 8 : q;
    std::uint8_t* to = record + even_offset(group) + (i % 2) * kOddOffset + i / 2;
    *to = static_cast<std::uint8_t>(upper);
    if (kPlanes == 2) to[layout.low_offset()] = static_cast<std::uint8_t>(q - upper * 256);
    sum += q;
  }
  const float scale = most / limit;
  reinterpret_cast<float*>(record + layout.scale_offset())[group] = scale;
  reinterpret_cast<float*>(record + layout.sum_offset())[group] = scale * static_cast<float>(sum);
}

#endif

void quantize(const float* x, std::int64_t first_group, std::int64_t groups, const RecordLayout& layout,
              std::uint8_t* record) {
  for (std::int64_t g = 0; g < groups; ++g) {
    if (layout.planes == 2) {
      quantize_group<2>(x + g * kRecordGroup, first_group + g, layout, record);
    } else {
      quantize_group<1>(x + g * kRecordGroup, first_group + g, layout, record);
    }
  }
}

void fill(Kernels& kernels) {
  kernels.quantize = quantize;
}

}  // namespace
}  // namespace lily::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lily::cpu {
HWY_EXPORT(fill);
void fill_record_kernels(Kernels& kernels) {
  HWY_DYNAMIC_DISPATCH(fill)(kernels);
}
}  // namespace lily::cpu
#endif
