#include "device/metal/tensor_probe.h"

#include "kernels/kernels.h"
#include "support/bfloat16.h"

namespace lily::metal {
namespace {

constexpr int kM = 32, kN = 64, kK = 64;

// Small multiples of 1/8 and 1/4: their products and sums are exact.
float left(int m, int k) {
  return static_cast<float>((m * 7 + k * 3) % 31 - 15) / 8;
}
float right(int n, int k) {
  return static_cast<float>((n * 5 + k * 11) % 29 - 14) / 4;
}

}  // namespace

bool tensor_ops_work(Device& device) try {
  const auto a = device.allocate(kM * kK * sizeof(BFloat16), Memory::kShared);
  const auto b = device.allocate(kN * kK * sizeof(BFloat16), Memory::kShared);
  const auto c = device.allocate(kM * kN * sizeof(float), Memory::kShared);
  for (int k = 0; k < kK; ++k) {
    for (int m = 0; m < kM; ++m) a->host_as<BFloat16>()[m * kK + k] = to_bfloat16(left(m, k));
    for (int n = 0; n < kN; ++n) b->host_as<BFloat16>()[n * kK + k] = to_bfloat16(right(n, k));
  }
  device.dispatch(kernels::tile_probe_64, {}, a->view<bfloat>(), b->view<bfloat>(), c->view<float>());
  device.wait(device.submit());
  for (int m = 0; m < kM; ++m)
    for (int n = 0; n < kN; ++n) {
      float sum = 0;
      for (int k = 0; k < kK; ++k) sum += left(m, k) * right(n, k);
      if (c->host_as<float>()[m * kN + n] != sum) return false;
    }
  return true;
} catch (const Error&) {
  return false;
}

}  // namespace lily::metal
