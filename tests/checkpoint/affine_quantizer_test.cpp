// What must hold for any group, whatever the oracle says (convert_oracle.py compares with MLX).
#include "checkpoint/affine_quantizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace lily {
namespace {

struct Quantized {
  std::vector<std::uint32_t> codes;
  std::vector<BFloat16> scales;
  std::vector<BFloat16> biases;

  float value(std::size_t i, int bits) const {
    const auto per_word = static_cast<std::size_t>(32 / bits);
    const std::uint32_t code = codes[i / per_word] >> (i % per_word * static_cast<std::size_t>(bits));
    const std::uint32_t mask = (1U << bits) - 1;
    return static_cast<float>(scales[i / 64]) * static_cast<float>(code & mask) + static_cast<float>(biases[i / 64]);
  }
};

Quantized quantize(const std::vector<float>& values, int bits) {
  Quantized q;
  q.codes.resize(values.size() * static_cast<std::size_t>(bits) / 32);
  q.scales.resize(values.size() / 64);
  q.biases.resize(values.size() / 64);
  quantize_affine(values, bits, q.codes, q.scales, q.biases);
  return q;
}

TEST(AffineQuantizer, ErrorsAreWithinAStep) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const int bits : {4, 8}) {
    std::vector<float> values(64 * 50);
    for (float& value : values) value = static_cast<float>(to_bfloat16(normal(random)));
    const Quantized q = quantize(values, bits);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto group = values.begin() + static_cast<std::ptrdiff_t>(i / 64 * 64);
      const auto [low, high] = std::minmax_element(group, group + 64);
      // Half a step, and once more as much for the end that the moved zero point leaves uncovered; bf16 scale and bias.
      const float step = (*high - *low) / static_cast<float>((1 << bits) - 1);
      const float rounding = (std::abs(*low) + std::abs(*high)) / 128;
      EXPECT_LE(std::abs(q.value(i, bits) - values[i]), step + rounding);
    }
  }
}

TEST(AffineQuantizer, ZeroAndTheFartherEndAreExact) {
  std::vector<float> values(64, 0.0F);
  values[3] = -2.0F;
  values[9] = 1.0F;
  const Quantized q = quantize(values, 4);
  EXPECT_EQ(q.value(3, 4), -2.0F);
  EXPECT_NEAR(q.value(0, 4), 0.0F, 0.01F);
  EXPECT_GT(static_cast<float>(q.scales[0]), 0);
  for (float& value : values) value = -value;
  const Quantized mirrored = quantize(values, 4);
  EXPECT_EQ(mirrored.value(3, 4), 2.0F);
  EXPECT_LT(static_cast<float>(mirrored.scales[0]), 0);
}

TEST(AffineQuantizer, ConstantGroupsKeepTheirValue) {
  for (const float constant : {0.0F, 1.0F, -3.5F, 1e-20F}) {
    const Quantized q = quantize(std::vector<float>(64, constant), 4);
    EXPECT_NEAR(q.value(0, 4), constant, 1e-7F + std::abs(constant) / 256);
  }
}

}  // namespace
}  // namespace lily
