// Memory of the CPU backend: page-aligned, zeroed, committed by the system only when it is touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "ops/ops.h"

namespace lily::cpu {

/// Anonymous pages. Reserving far more than is used costs address space only.
class Pages {
 public:
  Pages() = default;
  /// Throws Error when the system refuses. Large areas ask for huge pages.
  explicit Pages(std::size_t bytes);
  Pages(Pages&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Pages& operator=(Pages&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Pages();

  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A buffer that grows and is reused from one op to the next; its contents do not survive growing.
class Scratch {
 public:
  template <typename T>
  T* get(std::int64_t count) {
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    if (pages_.bytes() < bytes) {
      pages_ = Pages();
      pages_ = Pages(bytes + bytes / 4);
    }
    return pages_.as<T>();
  }

 private:
  Pages pages_;
};

/// Activations. Returns its pages to the pool when the last tensor that uses it is gone.
class TensorPool : public std::enable_shared_from_this<TensorPool> {
 public:
  std::shared_ptr<Storage> allocate(std::size_t bytes);

 private:
  friend class TensorStorage;
  std::vector<Pages> free_;
};

class TensorStorage final : public Storage {
 public:
  TensorStorage(std::shared_ptr<TensorPool> pool, Pages pages) : pool_(std::move(pool)), pages_(std::move(pages)) {}
  ~TensorStorage() override { pool_->free_.push_back(std::move(pages_)); }
  float* data() const { return pages_.as<float>(); }

 private:
  std::shared_ptr<TensorPool> pool_;
  Pages pages_;
};

/// The values of one of this backend's tensors: [rows, cols], rows without gaps.
inline float* values(const Tensor& tensor) {
  return static_cast<const TensorStorage&>(*tensor.storage).data();
}

}  // namespace lily::cpu
