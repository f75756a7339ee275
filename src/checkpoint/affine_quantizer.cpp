#include "checkpoint/affine_quantizer.h"

#include <algorithm>
#include <cmath>

#include "support/error.h"

namespace lily {
namespace {

constexpr std::size_t kGroup = 64;

struct Line {
  float scale;
  float bias;
};

Line fit(std::span<const float> group, float levels) {
  const auto [low, high] = std::minmax_element(group.begin(), group.end());
  const bool low_is_farther = std::abs(*low) > std::abs(*high);
  const float width = std::max((*high - *low) / levels, 1e-7F);
  const float step = low_is_farther ? width : -width;
  const float end = low_is_farther ? *low : *high;
  const float code = std::nearbyint(end / step);
  if (code == 0) return {.scale = step, .bias = 0};
  return {.scale = end / code, .bias = end};
}

}  // namespace

void quantize_affine(std::span<const float> values, int bits, std::span<std::uint32_t> codes,
                     std::span<BFloat16> scales, std::span<BFloat16> biases) {
  const std::size_t groups = values.size() / kGroup;
  const auto per_word = static_cast<std::size_t>(32 / bits);
  LILY_CHECK(values.size() % kGroup == 0 && (bits == 4 || bits == 8));
  LILY_CHECK(codes.size() == values.size() / per_word && scales.size() == groups && biases.size() == groups);
  const auto levels = static_cast<float>((1 << bits) - 1);
  std::size_t word = 0;
  for (std::size_t g = 0; g < groups; ++g) {
    const std::span<const float> group = values.subspan(g * kGroup, kGroup);
    const Line line = fit(group, levels);
    for (std::size_t first = 0; first < kGroup; first += per_word) {
      std::uint32_t packed = 0;
      for (std::size_t i = 0; i < per_word; ++i) {
        const float code = std::nearbyint((group[first + i] - line.bias) / line.scale);
        packed |= static_cast<std::uint32_t>(std::clamp(code, 0.0F, levels)) << (i * static_cast<std::size_t>(bits));
      }
      codes[word++] = packed;
    }
    scales[g] = to_bfloat16(line.scale);
    biases[g] = to_bfloat16(line.bias);
  }
}

}  // namespace lily
