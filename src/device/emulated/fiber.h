// Stacks for the emulator's GPU threads, and the switch between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

/// Saves the running stack's state in *save and goes on with `load`'s.
extern "C" void lily_fiber_switch(void** save, void* load);

namespace lily::emulated {

/// The state of a fiber that has not run: switching to it calls `body`, which must not return.
void* prepare_stack(std::byte* top, void (*body)());

/// Pages from the system behind a guard page (`guard_below`: stacks grow down) or before one.
class GuardedMemory {
 public:
  enum class Guard { kBelow, kAbove };
  GuardedMemory(std::size_t size, Guard guard);
  GuardedMemory(GuardedMemory&& other) noexcept;
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;
  ~GuardedMemory();

  std::span<std::byte> bytes() const { return {data_, size_}; }
  /// New pages at the same place: nothing remembers what was there.
  void renew();

 private:
  std::byte* mapping_ = nullptr;
  std::size_t mapping_size_ = 0;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace lily::emulated
