// Runs kernels on the CPU: one fiber for each GPU thread, real barriers, simdgroups of 32 lanes.
//
// Threadgroups, and the lanes within a simdgroup, run in a shuffled order; threadgroup memory starts as NaN; memory is
// guarded. It finds: threads that diverge at a barrier or a simdgroup function, a thread that leaves before others
// meet, deadlock, more than 32 KiB of threadgroup memory. Under AddressSanitizer overruns of buffers and of threadgroup
// memory. Under ThreadSanitizer (see src/device/CMakeLists.txt) each GPU thread is a thread of its own, so missing
// barriers within a kernel and missing barriers between dispatches are reported as data races.
//
// What it is not: fast, or a model of any GPU's timing or memory order beyond that.
#pragma once

#include <cstdint>
#include <memory>

#include "device/emulated/lane.h"
#include "device/entry.h"

namespace lily::emulated {

inline constexpr std::size_t kThreadgroupMemory = 32 << 10;

class Emulator {
 public:
  explicit Emulator(std::uint64_t seed = 1);
  Emulator(const Emulator&) = delete;
  Emulator& operator=(const Emulator&) = delete;
  ~Emulator();

  /// Runs one dispatch to its end. Other dispatches see what it wrote only after a fence. Throws lily::Error with the
  /// kernel's place when the kernel breaks a rule; memory that it wrote is then undefined.
  void run(const Entry& entry, void* const* arguments, Position groups);

  /// Orders dispatches before it against dispatches after it.
  void fence();
  /// Orders what the host did before it against dispatches after it.
  void host_to_device();
  /// Orders dispatches before it against what the host does after it.
  void device_to_host();

  class State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace lily::emulated
