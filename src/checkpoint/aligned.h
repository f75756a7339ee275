// Typed access to tensor bytes that may be misaligned.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "checkpoint/tensor_view.h"

namespace lily {

/// Codes, scales and biases of one matrix: the file's own bytes when all are aligned for 32-bit words, otherwise one
/// aligned copy of all three, which lives as long as owner().
class AlignedParts {
 public:
  explicit AlignedParts(std::array<std::span<const std::byte>, 3> parts);

  template <typename T>
  std::span<const T> as(std::size_t part) const {
    static_assert(alignof(T) <= alignof(std::uint32_t));
    return {reinterpret_cast<const T*>(parts_[part].data()), parts_[part].size() / sizeof(T)};
  }
  /// Null when nothing was copied.
  std::shared_ptr<const void> owner() const { return owner_; }

 private:
  std::array<std::span<const std::byte>, 3> parts_;
  std::shared_ptr<const void> owner_;
};

/// The values of a BF16, F16 or F32 tensor, widened.
std::vector<float> widen(const TensorView& tensor);

}  // namespace lily
