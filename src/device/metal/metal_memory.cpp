#include "device/metal/metal_memory.h"

#include "support/error.h"

namespace lily::metal {

ResidencySet::ResidencySet(MTL::Device& device, MTL::CommandQueue& queue) {
  const auto descriptor = NS::TransferPtr(MTL::ResidencySetDescriptor::alloc()->init());
  descriptor->setLabel(to_ns("lily"));
  NS::Error* error = nullptr;
  set_ = NS::TransferPtr(device.newResidencySet(descriptor.get(), &error));
  if (!set_) throw Error("Metal: no residency set: " + describe(error), "lily needs macOS 15 or later");
  queue.addResidencySet(set_.get());
}

void ResidencySet::add(const MTL::Buffer& buffer) {
  set_->addAllocation(&buffer);
  changed_ = true;
}

void ResidencySet::remove(const MTL::Buffer& buffer) {
  set_->removeAllocation(&buffer);
  changed_ = true;
}

void ResidencySet::commit() {
  if (!changed_) return;
  set_->commit();
  set_->requestResidency();
  changed_ = false;
}

MetalBuffer::MetalBuffer(NS::SharedPtr<MTL::Buffer> buffer, std::size_t base, std::size_t size, bool shared,
                         std::shared_ptr<ResidencySet> residency, std::shared_ptr<void> reservation)
    : Buffer(size, shared ? static_cast<std::byte*>(buffer->contents()) + base : nullptr),
      buffer_(std::move(buffer)),
      base_(base),
      residency_(std::move(residency)),
      reservation_(std::move(reservation)) {
  residency_->add(*buffer_.get());
}

MetalBuffer::~MetalBuffer() {
  const AutoreleasePool pool;
  residency_->remove(*buffer_.get());
}

}  // namespace lily::metal
