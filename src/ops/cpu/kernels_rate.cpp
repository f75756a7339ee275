// Nothing but products of bytes, as the integer kernels make them: how fast this CPU can multiply at best.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/kernels_rate.cpp"  // NOLINT
#include <array>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "ops/cpu/integer-inl.h"
#include "ops/cpu/kernel_tables.h"
#include "ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lily::cpu::HWY_NAMESPACE {
namespace {

#if LILY_INTEGER_SIMD

double dot_loop(std::int64_t passes) {
  constexpr std::int64_t kSums = 12;  // independent, so that they hide the instruction's latency
  const ByteTag bytes;
  alignas(64) std::array<std::uint8_t, static_cast<std::size_t>(kSums * kVectorBytes)> x;
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint8_t>(i % 100);
  const ByteVector codes = hn::Set(bytes, 7);
  SumVector sums[kSums];
  for (SumVector& sum : sums) sum = hn::Zero(SumTag());
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    asm volatile("" : : "r"(x.data()) : "memory");  // or products that never change would be made once
    for (std::int64_t i = 0; i < kSums; ++i)
      sums[i] = dot4(sums[i], codes, hn::Load(bytes, x.data() + i * kVectorBytes));
  }
  for (std::int64_t i = 1; i < kSums; ++i) sums[0] = hn::Add(sums[0], sums[i]);
  hn::StoreU(hn::BitCast(bytes, sums[0]), bytes, x.data());
  asm volatile("" : : "r"(x.data()) : "memory");
  return 2.0 * static_cast<double>(passes * kSums * kVectorBytes);
}

#endif

void fill(Kernels& kernels) {
#if LILY_INTEGER_SIMD
  kernels.dot_loop = dot_loop;
#else
  kernels.dot_loop = nullptr;
#endif
}

}  // namespace
}  // namespace lily::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lily::cpu {
HWY_EXPORT(fill);
void LILY_FILL(rate_kernels)(Kernels& kernels) {
  HWY_DYNAMIC_DISPATCH(fill)(kernels);
}
}  // namespace lily::cpu
#endif
