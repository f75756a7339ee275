// Quantised matrices: views into the mapped checkpoint, into the aligned copy that the checkpoint made of misaligned
// data, or into this backend's own copy in huge pages.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "checkpoint/tensor_view.h"
#include "ops/cpu/memory.h"
#include "ops/ops.h"

namespace lily::cpu {

/// Rows [out, in] of one quantised matrix: w[o][i] = scales[o][i / group] * code[o][i] + biases[o][i / group].
struct QuantRows {
  const std::uint8_t* codes = nullptr;  // [out, in * bits / 8], lowest bits first
  const BFloat16* scales = nullptr;     // [out, in / group]
  const BFloat16* biases = nullptr;     // [out, in / group]
  std::int64_t out = 0;
  std::int64_t in = 0;
  int bits = 4;
  int group = 64;
  std::shared_ptr<const void> owner;  // of the checkpoint's aligned copy, if it made one

  std::int64_t row_bytes() const { return in * bits / 8; }
  std::int64_t groups() const { return in / group; }
  /// Bytes of codes, scales and biases of one row.
  std::int64_t stored_row_bytes() const { return row_bytes() + 4 * groups(); }
};

/// Expert `index` of a stack.
inline QuantRows expert_rows(const QuantizedMatrix& matrix, std::int64_t index) {
  const std::int64_t words = matrix.out * matrix.in * matrix.bits / 32;
  const std::int64_t groups = matrix.out * (matrix.in / matrix.group);
  return {reinterpret_cast<const std::uint8_t*>(matrix.codes.data() + index * words),
          matrix.scales.data() + index * groups,
          matrix.biases.data() + index * groups,
          matrix.out,
          matrix.in,
          matrix.bits,
          matrix.group,
          matrix.owner};
}

/// A run of consecutive rows of one part, and where they stand in the whole matrix.
struct RowBlock {
  const QuantRows* part = nullptr;
  std::int64_t begin = 0;  // first row inside the part
  std::int64_t rows = 0;
  std::int64_t column = 0;  // output column of the first row
};

/// A Weight: parts one after another.
class MatrixStorage final : public Storage {
 public:
  /// `copy`: where the parts lie, if not in the checkpoint.
  explicit MatrixStorage(std::vector<QuantRows> parts, Pages copy = {})
      : parts_(std::move(parts)), copy_(std::move(copy)) {}
  const std::vector<QuantRows>& parts() const { return parts_; }

  /// How many blocks of at most `size` rows the matrix has, none across two parts.
  std::int64_t blocks(std::int64_t size) const {
    std::int64_t count = 0;
    for (const QuantRows& part : parts_) count += (part.out + size - 1) / size;
    return count;
  }
  RowBlock block(std::int64_t index, std::int64_t size) const {
    std::int64_t column = 0;
    for (const QuantRows& part : parts_) {
      const std::int64_t count = (part.out + size - 1) / size;
      if (index < count) {
        const std::int64_t begin = index * size;
        return {&part, begin, begin + size < part.out ? size : part.out - begin, column + begin};
      }
      index -= count;
      column += part.out;
    }
    return {};
  }

 private:
  std::vector<QuantRows> parts_;
  Pages copy_;
};

/// One MLP: gate and up [intermediate, hidden], down [hidden, intermediate].
struct Mlp {
  QuantRows gate, up, down;
};

/// The stack of experts, then the shared expert.
class ExpertStorage final : public Storage {
 public:
  ExpertStorage(std::vector<Mlp> experts, Mlp shared) : experts_(std::move(experts)), shared_(shared) {}
  const std::vector<Mlp>& experts() const { return experts_; }
  const Mlp& shared() const { return shared_; }

 private:
  std::vector<Mlp> experts_;
  Mlp shared_;
};

class VectorStorage final : public Storage {
 public:
  explicit VectorStorage(std::vector<float> data) : data_(std::move(data)) {}
  const float* data() const { return data_.data(); }

 private:
  std::vector<float> data_;
};

inline const MatrixStorage& matrix(const Weight& weight) {
  return static_cast<const MatrixStorage&>(*weight.storage);
}
inline const float* values(const Vector& vector) {
  return static_cast<const VectorStorage&>(*vector.storage).data();
}

}  // namespace lily::cpu
