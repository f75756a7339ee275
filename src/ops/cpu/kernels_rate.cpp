// Nothing but products of bytes, as the integer kernels make them: how fast this CPU can multiply at best.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/kernels_rate.cpp"  // NOLINT
#include <array>
#include <utility>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "ops/cpu/integer-inl.h"
#include "ops/cpu/kernel_tables.h"
#include "ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lily::cpu::HWY_NAMESPACE {
namespace {

#if LILY_INTEGER_SIMD

// Sums with constant indices stay in registers; in a loop over an array the compiler stores and loads them.
template <std::size_t... kIndex>
double dots_of(std::int64_t passes, std::index_sequence<kIndex...>) {
  constexpr auto kSums = static_cast<std::int64_t>(sizeof...(kIndex));
  const ByteTag bytes;
  alignas(64) std::array<std::uint8_t, static_cast<std::size_t>(kSums * kVectorBytes)> x;
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint8_t>(i % 100);
  const ByteVector codes = hn::Set(bytes, 7);
  SumVector sums[] = {((void)kIndex, hn::Zero(SumTag()))...};
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    asm volatile("" : : "r"(x.data()) : "memory");  // or products that never change would be made once
    ((sums[kIndex] = dot4(sums[kIndex], codes, hn::Load(bytes, x.data() + kIndex * kVectorBytes))), ...);
  }
  SumVector sum = hn::Zero(SumTag());
  ((sum = hn::Add(sum, sums[kIndex])), ...);
  hn::StoreU(hn::BitCast(bytes, sum), bytes, x.data());
  asm volatile("" : : "r"(x.data()) : "memory");
  return 2.0 * static_cast<double>(passes * kSums * kVectorBytes);
}

double dot_loop(std::int64_t passes) {
  return dots_of(passes, std::make_index_sequence<12>());  // independent, so that they hide the instruction's latency
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
