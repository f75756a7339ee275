// Weights that come next are sent for to the second-level cache (the first is full with what is being multiplied), a
// few lines with each group of products: all at once they would fill the core's queue of reads and hold up the
// products.
#pragma once

#include <cstdint>

#include "ops/cpu/matrix.h"

namespace lily::cpu {

constexpr std::int64_t kLineBytes = 64;

/// Codes that are still to be sent for.
struct Upcoming {
  const std::uint8_t* at = nullptr;
  const std::uint8_t* end = nullptr;
  std::int64_t lines = 0;  // with each group

  void send_for() {
    for (std::int64_t i = 0; i < lines; ++i, at += kLineBytes) __builtin_prefetch(at, 0, 2);
  }
  /// After `groups` groups of which a copy took care.
  void skip(std::int64_t groups) {
    at += groups * lines * kLineBytes;
    if (at >= end) lines = 0;
  }
};

/// The codes of some rows, to be sent for with `groups` groups of products; their scales and biases are at once. No
/// weight: nothing.
inline Upcoming upcoming_rows(const QuantRows* weight, std::int64_t first, std::int64_t rows, std::int64_t groups) {
  if (weight == nullptr) return {};
  for (const BFloat16* values : {weight->scales, weight->biases}) {
    const auto* from = reinterpret_cast<const std::uint8_t*>(values + first * weight->groups());
    for (std::int64_t at = 0; at < 2 * rows * weight->groups(); at += kLineBytes) __builtin_prefetch(from + at, 0, 2);
  }
  const std::uint8_t* codes = weight->codes + first * weight->row_bytes();
  const std::int64_t bytes = rows * weight->row_bytes();
  return {codes, codes + bytes, (bytes + groups * kLineBytes - 1) / (groups * kLineBytes)};
}

}  // namespace lily::cpu
