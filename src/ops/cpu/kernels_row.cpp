// Element-wise kernels over one row: norms and gates.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/kernels_row.cpp"  // NOLINT
#include <cmath>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "ops/cpu/kernel_tables.h"
#include "ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lily::cpu::HWY_NAMESPACE {
namespace {

void rms_norm(const float* x, const float* weight, float eps, float factor, std::int64_t n, float* out) {
  const float scale = factor / std::sqrt(dot(x, x, n) / static_cast<float>(n) + eps);
  for_lanes(n, [&](auto d, std::int64_t i) HWY_ATTR {
    auto value = hn::Mul(hn::LoadU(d, x + i), hn::Set(d, scale));
    if (weight != nullptr) value = hn::Mul(value, hn::LoadU(d, weight + i));
    hn::StoreU(value, d, out + i);
  });
}

void silu_mul(const float* gate, const float* up, std::int64_t n, float* out) {
  for_lanes(n, [&](auto d, std::int64_t i) HWY_ATTR {
    const auto g = hn::LoadU(d, gate + i);
    hn::StoreU(hn::Mul(hn::Mul(g, sigmoid(d, g)), hn::LoadU(d, up + i)), d, out + i);
  });
}

void sigmoid_gate(const float* x, const float* gate, float factor, std::int64_t n, float* out) {
  for_lanes(n, [&](auto d, std::int64_t i) HWY_ATTR {
    const auto value = hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor));
    hn::StoreU(hn::Mul(value, sigmoid(d, hn::LoadU(d, gate + i))), d, out + i);
  });
}

void scaled_add(const float* x, float factor, std::int64_t n, float* out) {
  for_lanes(n, [&](auto d, std::int64_t i) HWY_ATTR {
    hn::StoreU(hn::MulAdd(hn::LoadU(d, x + i), hn::Set(d, factor), hn::LoadU(d, out + i)), d, out + i);
  });
}

void fill(Kernels& kernels) {
  kernels.rms_norm = rms_norm;
  kernels.silu_mul = silu_mul;
  kernels.sigmoid_gate = sigmoid_gate;
  kernels.scaled_add = scaled_add;
}

}  // namespace
}  // namespace lily::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lily::cpu {
HWY_EXPORT(fill);
void fill_row_kernels(Kernels& kernels) {
  HWY_DYNAMIC_DISPATCH(fill)(kernels);
}
}  // namespace lily::cpu
#endif
