// How much memory this machine has, and how much of it this process can still get.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace lily {

struct MachineMemory {
  std::uint64_t total = 0;
  /// Without pushing anything but file caches out: the system's estimate, or what the control group (container) leaves
  /// if that is less.
  std::uint64_t available = 0;
};

/// Nothing where the system does not tell.
std::optional<MachineMemory> machine_memory();

#ifdef __linux__
/// The same from other roots than / and of the control group that `root`/proc/self/cgroup names; for tests.
std::optional<MachineMemory> machine_memory_at(const std::filesystem::path& root);
#endif

}  // namespace lily
