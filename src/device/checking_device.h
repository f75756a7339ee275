// A Device that runs every launch twice, on the device under test and in the emulator, from the same inputs, and
// compares what the two wrote: each kernel's own error, not what has grown over the launches before it.
//
// Whoever drives it with real work (a model, `lily selftest`) gets a verdict on every kernel that this work used.
// Launches run one at a time and every one is waited for: it is no measure of speed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"

namespace lily {

/// What was seen of one entry point.
struct KernelVerdict {
  std::string name;
  std::uint64_t launches = 0;
  double worst_error = 0;       // of floats: |a - b| over the output's largest |b|, and infinite where one is NaN
  std::uint64_t different = 0;  // words that are not floats and differ; where a kernel has atomics, in any order
  std::string failure;          // what the device said instead of running it
  bool right(double tolerance) const { return failure.empty() && different == 0 && worst_error <= tolerance; }
};

class CheckingDevice : public Device {
 public:
  /// Compares with a new emulated device.
  explicit CheckingDevice(std::unique_ptr<Device> under_test);
  ~CheckingDevice() override;

  const DeviceInfo& info() const override { return under_test_->info(); }
  /// By name.
  std::vector<KernelVerdict> verdicts() const;

 protected:
  std::unique_ptr<Buffer> do_allocate(std::size_t bytes, Memory memory) override;
  std::unique_ptr<Buffer> do_map(std::span<const std::byte> bytes) override;
  void do_write(Buffer& buffer, std::size_t offset, std::span<const std::byte> bytes) override;
  void do_read(const Buffer& buffer, std::size_t offset, std::span<std::byte> out) override;
  void do_submit(const CommandList& commands, Ticket ticket) override;
  void do_wait(Ticket) override {}
  bool do_done(Ticket) override { return true; }

 private:
  struct Twin;
  struct Verdicts;
  void run(const CommandList& commands, const CommandList::Dispatch& dispatch);
  void compare(const CommandList& commands, const CommandList::Dispatch& dispatch, KernelVerdict& verdict);

  std::unique_ptr<Device> under_test_, emulated_;
  std::unique_ptr<Verdicts> verdicts_;
};

}  // namespace lily
