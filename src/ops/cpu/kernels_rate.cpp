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

#ifdef LILY_COMPILING_I8MM
constexpr double kOperations = 4;  // per byte of a vector
HWY_INLINE SumVector products(SumVector sums, ByteVector codes, ByteVector x) {
  return dot8_pairs(sums, x, codes);
}
#else
constexpr double kOperations = 2;
HWY_INLINE SumVector products(SumVector sums, ByteVector codes, ByteVector x) {
  return dot4(sums, codes, x);
}
#endif

double dot_loop(std::int64_t passes) {
  constexpr std::int64_t kSums = 12;  // independent, so that they hide the instruction's latency; named, or they would
                                      // not stay in registers
  const ByteTag bytes;
  alignas(64) std::array<std::uint8_t, static_cast<std::size_t>(kSums * kVectorBytes)> x;
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint8_t>(i % 100);
  const std::uint8_t* from = x.data();
  const ByteVector codes = hn::Set(bytes, 7);
  const SumVector zero = hn::Zero(SumTag());
  SumVector a = zero, b = zero, c = zero, d = zero, e = zero, f = zero;
  SumVector g = zero, h = zero, i = zero, j = zero, k = zero, l = zero;
  for (std::int64_t pass = 0; pass < passes; ++pass) {
    asm volatile("" : : "r"(from) : "memory");  // or products that never change would be made once
    const auto next = [&](SumVector sum, std::int64_t at)
                          HWY_ATTR { return products(sum, codes, hn::Load(bytes, from + at * kVectorBytes)); };
    a = next(a, 0), b = next(b, 1), c = next(c, 2), d = next(d, 3), e = next(e, 4), f = next(f, 5);
    g = next(g, 6), h = next(h, 7), i = next(i, 8), j = next(j, 9), k = next(k, 10), l = next(l, 11);
  }
  for (const SumVector sum : {b, c, d, e, f, g, h, i, j, k, l}) a = hn::Add(a, sum);
  hn::StoreU(hn::BitCast(bytes, a), bytes, x.data());
  asm volatile("" : : "r"(from) : "memory");
  return kOperations * static_cast<double>(passes * kSums * kVectorBytes);
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
