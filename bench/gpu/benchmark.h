// What a benchmark of this folder is: its main() is in main.cpp.
#pragma once

#include <memory>
#include <string_view>

#include "device/device.h"

namespace lily {

/// `kind` as parse_device_kind() takes it. Throws Error, in the program's name, where there is none.
std::unique_ptr<Device> require_gpu(std::string_view program, std::string_view kind);

/// Gives the process's exit code; an Error it throws is printed.
int run_benchmark(int argc, char** argv);

}  // namespace lily
