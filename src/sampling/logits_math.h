// Passes over a row of logits, written so that compilers turn them into vector code without fast-math. A logit is
// finite, -inf (can never be drawn) or NaN (treated as -inf); +inf was clamped before.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace lily {

inline constexpr float kNoLogit = -std::numeric_limits<float>::infinity();

/// The largest; -inf for an empty span or when all are NaN.
inline float largest(std::span<const float> logits) {
  constexpr std::size_t kLanes = 16;
  std::array<float, kLanes> lanes;
  lanes.fill(kNoLogit);
  std::size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = logits[i + lane] > lanes[lane] ? logits[i + lane] : lanes[lane];
    }
  }
  float result = kNoLogit;
  for (const float lane : lanes) result = lane > result ? lane : result;
  for (; i < logits.size(); ++i) result = logits[i] > result ? logits[i] : result;
  return result;
}

/// In double.
inline double sum(std::span<const float> values) {
  constexpr std::size_t kLanes = 8;
  std::array<double, kLanes> lanes{};
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += static_cast<double>(values[i + lane]);
  }
  double result = 0.0;
  for (const double lane : lanes) result += lane;
  for (; i < values.size(); ++i) result += static_cast<double>(values[i]);
  return result;
}

/// What exp_clamped() takes: below it, and for NaN, e^x is 0 anyway.
inline float clamp_exponent(float x) {
  return x > -100.0F ? x : -100.0F;
}

/// e^x for x in [-100, 0], relative error below 3e-7, exactly 1 at 0 and 0 below -88.
inline float exp_clamped(float x) {
  constexpr float kLog2e = 1.44269504F;
  constexpr float kLn2High = 0.693145752F;  // 16 bits: multiples up to 150 are exact
  constexpr float kLn2Low = 1.42860677e-6F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = x * kLog2e + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;  // [-ln2/2, ln2/2]
  float y = 1.0F / 720.0F;
  y = y * r + 1.0F / 120.0F;
  y = y * r + 1.0F / 24.0F;
  y = y * r + 1.0F / 6.0F;
  y = y * r + 0.5F;
  y = y * r + 1.0F;
  y = y * r + 1.0F;
  // 2^n by its bits; what would be subnormal is 0.
  const std::int32_t exponent = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(kRound) + 127;
  return y * std::bit_cast<float>((exponent > 0 ? exponent : 0) << 23);
}

/// out[i] = e^((logits[i] - top) / temperature), with top >= every logit; returns their sum.
inline double exp_weights(std::span<const float> logits, float top, float temperature, std::span<float> out) {
  const float scale = 1.0F / std::max(temperature, 1e-30F);  // finite, so that 0 * scale is 0
  // Two loops: in one, GCC 12 splits off the clamped case as a branch and gives up vector code.
  for (std::size_t i = 0; i < logits.size(); ++i) out[i] = clamp_exponent((logits[i] - top) * scale);
  for (float& value : out) value = exp_clamped(value);
  return sum(out);
}

}  // namespace lily
