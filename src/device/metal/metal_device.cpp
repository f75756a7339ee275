#include "device/metal/metal_device.h"

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <deque>

#include "device/metal/metal_library.h"
#include "device/metal/metal_memory.h"
#include "device/metal/tensor_probe.h"

namespace lily {
namespace {

using metal::AutoreleasePool;
using metal::MetalBuffer;

// Nothing is tracked by Metal itself: barriers within a submission, a fence between submissions.
constexpr MTL::ResourceOptions kMemory = MTL::ResourceStorageModeShared | MTL::ResourceHazardTrackingModeUntracked;

NS::SharedPtr<MTL::Device> find_device() {
  auto device = NS::TransferPtr(MTL::CreateSystemDefaultDevice());
  if (!device) throw Error("Metal: no GPU", "use --device cpu");
  if (!device->hasUnifiedMemory() || !device->supportsFamily(MTL::GPUFamilyApple7)) {
    throw Error(fmt::format("Metal: {} is not an Apple GPU", device->name()->utf8String()),
                "lily needs an M1 or later; use --device cpu");
  }
  return device;
}

std::string hint_for(NS::Integer code) {
  if (code == MTL::CommandBufferErrorOutOfMemory) return "use a shorter context, or close other programs";
  if (code == MTL::CommandBufferErrorTimeout) return "the GPU was busy for too long: close other programs that use it";
  return "please report this with the output of `lily selftest`";
}

/// What a command buffer's completion handler leaves behind: written by Metal's thread, read after `done`.
struct Completion {
  std::atomic<bool> done = false;
  std::string failure;
  std::string hint;
};

class MetalDevice : public Device {
 public:
  explicit MetalDevice(const MetalOptions& options)
      : device_(find_device()),
        queue_(NS::TransferPtr(device_->newCommandQueue())),
        fence_(NS::TransferPtr(device_->newFence())),
        residency_(std::make_shared<metal::ResidencySet>(*device_.get(), *queue_.get())) {
    const bool tensor_ops = options.tensor_ops && metal::has_tensor_ops(*device_.get());
    library_ = std::make_unique<metal::KernelLibrary>(device_, options.sources, tensor_ops);
    info_ = {DeviceKind::kMetal, device_->name()->utf8String(),
             static_cast<std::size_t>(device_->recommendedMaxWorkingSetSize()), true, tensor_ops};
  }
  ~MetalDevice() override {
    const AutoreleasePool pool;
    for (const Submission& submission : in_flight_) submission.commands->waitUntilCompleted();
    in_flight_.clear();
  }
  const DeviceInfo& info() const override { return info_; }

 protected:
  std::unique_ptr<Buffer> do_allocate(std::size_t bytes, Memory memory) override;
  std::unique_ptr<Buffer> do_map(std::span<const std::byte> bytes) override;
  void do_write(Buffer& buffer, std::size_t offset, std::span<const std::byte> bytes) override {
    std::memcpy(static_cast<MetalBuffer&>(buffer).data() + offset, bytes.data(), bytes.size());
  }
  void do_read(const Buffer& buffer, std::size_t offset, std::span<std::byte> out) override {
    std::memcpy(out.data(), static_cast<const MetalBuffer&>(buffer).data() + offset, out.size());
  }
  void do_submit(const CommandList& commands, Ticket ticket) override;
  void do_wait(Ticket ticket) override;
  bool do_done(Ticket ticket) override {
    for (const Submission& submission : in_flight_)
      if (submission.ticket == ticket) return submission.completion->done;
    return true;
  }

 private:
  struct Submission {
    Ticket ticket;
    NS::SharedPtr<MTL::CommandBuffer> commands;
    std::shared_ptr<Completion> completion;
  };

  void encode(MTL::ComputeCommandEncoder& encoder, const CommandList& commands);
  void bind(MTL::ComputeCommandEncoder& encoder, const CommandList& commands, const CommandList::Dispatch& dispatch);

  NS::SharedPtr<MTL::Device> device_;
  NS::SharedPtr<MTL::CommandQueue> queue_;
  NS::SharedPtr<MTL::Fence> fence_;
  std::shared_ptr<metal::ResidencySet> residency_;
  std::unique_ptr<metal::KernelLibrary> library_;
  DeviceInfo info_;
  std::deque<Submission> in_flight_;
};

std::unique_ptr<Buffer> MetalDevice::do_allocate(std::size_t bytes, Memory memory) {
  const AutoreleasePool pool;
  auto reservation = reserve(bytes, "memory");
  if (bytes > device_->maxBufferLength()) {
    throw_error("Metal: one buffer of {} bytes is more than this GPU takes ({})", bytes, device_->maxBufferLength());
  }
  auto buffer = NS::TransferPtr(device_->newBuffer(bytes, kMemory));
  if (!buffer) throw Error(fmt::format("Metal: no {} bytes of memory", bytes), "use a shorter context");
  return std::make_unique<MetalBuffer>(std::move(buffer), 0, bytes, memory == Memory::kShared, residency_,
                                       std::move(reservation));
}

/// The pages around the bytes, in place.
std::unique_ptr<Buffer> MetalDevice::do_map(std::span<const std::byte> bytes) {
  const AutoreleasePool pool;
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t begin = address / page * page;
  const std::uintptr_t end = (address + bytes.size() + page - 1) / page * page;
  auto reservation = reserve(end - begin, "the checkpoint's memory");
  auto buffer =
      end - begin > device_->maxBufferLength()
          ? NS::SharedPtr<MTL::Buffer>()
          : NS::TransferPtr(device_->newBuffer(reinterpret_cast<const void*>(begin), end - begin, kMemory, nullptr));
  if (buffer) {
    return std::make_unique<MetalBuffer>(std::move(buffer), address - begin, bytes.size(), false, residency_,
                                         std::move(reservation));
  }
  reservation.reset();
  auto copy = do_allocate(bytes.size(), Memory::kDevice);
  do_write(*copy, 0, bytes);
  return copy;
}

void MetalDevice::bind(MTL::ComputeCommandEncoder& encoder, const CommandList& commands,
                       const CommandList::Dispatch& dispatch) {
  NS::UInteger index = 0;
  for (const CommandList::Argument& argument : commands.arguments_of(dispatch)) {
    if (argument.buffer == nullptr) {
      encoder.setBytes(&commands.values[argument.offset], argument.size, index++);
    } else {
      const auto& buffer = static_cast<const MetalBuffer&>(*argument.buffer);
      encoder.setBuffer(buffer.buffer(), buffer.base() + argument.offset, index++);
    }
  }
}

void MetalDevice::encode(MTL::ComputeCommandEncoder& encoder, const CommandList& commands) {
  const Entry* current = nullptr;
  for (const CommandList::Dispatch& dispatch : commands.dispatches) {
    if (dispatch.barrier) encoder.memoryBarrier(MTL::BarrierScopeBuffers);
    if (dispatch.entry != current) encoder.setComputePipelineState(&library_->pipeline(*dispatch.entry));
    current = dispatch.entry;
    bind(encoder, commands, dispatch);
    encoder.dispatchThreadgroups(MTL::Size(dispatch.groups.x, dispatch.groups.y, dispatch.groups.z),
                                 MTL::Size(current->threads, 1, 1));
  }
}

void MetalDevice::do_submit(const CommandList& commands, Ticket ticket) {
  const AutoreleasePool pool;
  for (const CommandList::Dispatch& dispatch : commands.dispatches) library_->pipeline(*dispatch.entry);  // may throw
  residency_->commit();
  auto buffer = NS::RetainPtr(queue_->commandBufferWithUnretainedReferences());
  MTL::ComputeCommandEncoder* encoder = buffer->computeCommandEncoder(MTL::DispatchTypeConcurrent);
  encoder->waitForFence(fence_.get());
  encode(*encoder, commands);
  encoder->updateFence(fence_.get());
  encoder->endEncoding();
  auto completion = std::make_shared<Completion>();
  buffer->addCompletedHandler([completion](MTL::CommandBuffer* finished) {
    if (finished->status() == MTL::CommandBufferStatusError) {
      completion->failure = metal::describe(finished->error());
      completion->hint = hint_for(finished->error() == nullptr ? 0 : finished->error()->code());
    }
    completion->done = true;
  });
  buffer->commit();
  in_flight_.push_back({ticket, std::move(buffer), std::move(completion)});
}

void MetalDevice::do_wait(Ticket ticket) {
  const AutoreleasePool pool;
  while (!in_flight_.empty() && in_flight_.front().ticket <= ticket) {
    const Submission submission = std::move(in_flight_.front());
    in_flight_.pop_front();
    submission.commands->waitUntilCompleted();  // and for its handler
    if (!submission.completion->failure.empty()) {
      throw Error("Metal: " + submission.completion->failure, submission.completion->hint);
    }
  }
}

}  // namespace

bool metal_available() {
  const AutoreleasePool pool;
  return static_cast<bool>(NS::TransferPtr(MTL::CreateSystemDefaultDevice()));
}

std::unique_ptr<Device> make_metal_device(const MetalOptions& options) {
  const AutoreleasePool pool;
  auto device = std::make_unique<MetalDevice>(options);
  if (!device->info().tensor_ops || metal::tensor_ops_work(*device)) return device;
  MetalOptions without = options;
  without.tensor_ops = false;
  return std::make_unique<MetalDevice>(without);
}

}  // namespace lily
