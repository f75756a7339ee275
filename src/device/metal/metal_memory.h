// Buffers in Metal's memory, and the residency set that keeps all of them where the GPU can reach them.
#pragma once

#include <memory>
#include <span>

#include "device/device.h"
#include "device/metal/metal_cpp.h"

namespace lily::metal {

class ResidencySet {
 public:
  ResidencySet(MTL::Device& device, MTL::CommandQueue& queue);
  void add(const MTL::Buffer& buffer);
  void remove(const MTL::Buffer& buffer);
  /// Before a submission: makes what was added resident.
  void commit();

 private:
  NS::SharedPtr<MTL::ResidencySet> set_;
  bool changed_ = false;
};

class MetalBuffer : public Buffer {
 public:
  /// Byte 0 of this buffer is byte `base` of `buffer`.
  MetalBuffer(NS::SharedPtr<MTL::Buffer> buffer, std::size_t base, std::size_t size, bool shared,
              std::shared_ptr<ResidencySet> residency, std::shared_ptr<void> reservation);
  ~MetalBuffer() override;
  const MTL::Buffer* buffer() const { return buffer_.get(); }
  std::size_t base() const { return base_; }
  std::byte* data() const { return static_cast<std::byte*>(buffer_->contents()) + base_; }

 private:
  NS::SharedPtr<MTL::Buffer> buffer_;
  std::size_t base_;
  std::shared_ptr<ResidencySet> residency_;
  std::shared_ptr<void> reservation_;
};

}  // namespace lily::metal
