// A Device that runs kernels in the emulator, on the calling thread, when they are waited for: a host that reads too
// early finds what was there before. For tests, and for machines without a GPU when speed does not matter.
#pragma once

#include <cstdint>
#include <memory>

#include "device/device.h"

namespace lily {

struct EmulatedOptions {
  std::uint64_t seed = 1;  // of the order in which threads and threadgroups run
  std::size_t memory_budget = std::size_t{1} << 40;
  bool only_counts = false;  // launches are checked and counted, but not run: memory keeps what was in it
};

std::unique_ptr<Device> make_emulated_device(const EmulatedOptions& options = {});

}  // namespace lily
