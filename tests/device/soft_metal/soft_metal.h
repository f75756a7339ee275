// Metal in software, for tests on machines without it: the classes behind metal-cpp's calls, whose GPU is a thread that
// runs the kernels in the emulator. It checks what Metal's own validation does and more, and ends the program with a
// sentence when it is used wrongly: arguments that are missing, too small, misaligned or of the wrong kind; buffers
// that are not resident, or freed while they are in use; encoders left open; objects that leak.
//
// Order is as on a GPU with untracked resources: dispatches run in any order between two memory barriers, encoders are
// ordered by fences alone. ThreadSanitizer sees the rest as races.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "device/entry.h"

namespace soft_metal {

/// What the machine is like, and what goes wrong on it next.
struct Machine {
  std::uint64_t seed = 1;                      // of the order of dispatches, threadgroups and threads
  std::string architecture = "applegpu_g16s";  // an M4 Max
  long macos[3] = {26, 4, 0};
  std::uint64_t recommended_working_set = std::uint64_t{1} << 34;
  std::uint64_t max_buffer_length = std::uint64_t{1} << 32;
  bool unified_memory = true;
  unsigned max_threads = 1024;  // of any pipeline: fewer when a kernel needs many registers
  bool metal_4_compiles = true;
  bool metal_3_compiles = true;
  bool tensor_ops_lie = false;   // kernels that were compiled as Metal 4 write something else
  long fail_command_buffer = 0;  // the next one ends with this error code
};
Machine& machine();

/// The kernels that libraries can find: the entries of these lists whose names the library's source registers. Asked
/// when a library is, since lists are made when the program starts.
void add_entries(std::span<const lily::Entry* const> (*list)());

/// Of libraries: how many were compiled as Metal 3.1 and as Metal 4 since the last call.
struct Compilations {
  int metal_3 = 0;
  int metal_4 = 0;
};
Compilations take_compilations();

/// The classes that still have objects; empty when nothing leaked.
std::string leaks();

}  // namespace soft_metal
