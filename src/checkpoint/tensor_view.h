// What a checkpoint file holds, as views into mapped memory. The Checkpoint that gave them must outlive them.
//
// Safetensors files do not promise alignment (MLX writes headers of any length, so that a shard's data may start at an
// odd byte). A TensorView is raw bytes and may be misaligned; a QuantizedMatrix is always aligned for its types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "support/bfloat16.h"

namespace lily {

enum class DType { kBF16, kF16, kF32, kU32, kU8, kI32, kI64, kOther };

struct TensorView {
  std::string name;
  DType dtype = DType::kOther;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  // row-major, of any alignment
};

/// A group-affine quantised matrix (MLX): w[o][i] = scales[o][i / group] * code[o][i] + biases[o][i / group].
/// Codes are packed into uint32 words, lowest bits first: 8 codes a word at 4 bits, 4 at 8 bits.
/// Stacked experts stand one after another: every field is [experts, out, ...].
struct QuantizedMatrix {
  std::int64_t experts = 1;
  std::int64_t out = 0;
  std::int64_t in = 0;
  int bits = 4;                          // 4 or 8
  int group = 64;                        // consecutive input values that share a scale and a bias
  std::span<const std::uint32_t> codes;  // [experts, out, in * bits / 32]
  std::span<const BFloat16> scales;      // [experts, out, in / group]
  std::span<const BFloat16> biases;      // [experts, out, in / group]
  /// Holds aligned copies where the file's data is misaligned; null when the spans point into the mapped file.
  /// Whoever keeps the spans keeps this too.
  std::shared_ptr<const void> owner;
  bool mapped = false;  // the spans point into the mapped file
};

}  // namespace lily
