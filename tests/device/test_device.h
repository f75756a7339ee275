// The devices that tests run on: the emulator with several orders of its threads, and each GPU that this machine has.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device/device.h"

namespace lily {

/// "emulated_1", "emulated_2", ..., "cuda", "metal"
std::vector<std::string> test_device_names();
/// With the kernels of tests/device/kernels.
std::unique_ptr<Device> make_test_device(const std::string& name);

}  // namespace lily
