// bfloat16: the upper half of an IEEE float32.
#pragma once

#include <bit>
#include <cstdint>

namespace lily {

struct BFloat16 {
  std::uint16_t bits = 0;
  explicit operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }
};
static_assert(sizeof(BFloat16) == 2);

/// Round to nearest, ties to even; NaN stays NaN.
inline BFloat16 to_bfloat16(float value) {
  const auto u = std::bit_cast<std::uint32_t>(value);
  if ((u & 0x7fffffffU) > 0x7f800000U) return {static_cast<std::uint16_t>((u >> 16) | 0x40U)};
  return {static_cast<std::uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16)};
}

}  // namespace lily
