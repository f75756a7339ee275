// What the machine can do at best, measured here and now.
#pragma once

#include <optional>

#include "device/device.h"

namespace lily {

/// Seconds on a clock that starts anywhere.
using ClockSeconds = double (*)();
double wall_seconds();

/// Bytes per second that `threads` (0: all usable cores) read from memory that does not fit the caches; the best of
/// several passes, timed by `now` on the calling thread, which is one of them.
double measured_read_bandwidth(int threads, ClockSeconds now = wall_seconds);

/// The same for a GPU: bytes read and written by a copy of its memory.
double measured_copy_bandwidth(Device& device);

/// Multiplications and additions per second of the CPU's products of bytes, on `threads` (0: all usable cores); none
/// where the CPU has no vectors. Activations of 16 bits need two of them for one product.
std::optional<double> measured_dot_rate(int threads, ClockSeconds now = wall_seconds);

/// The same for a GPU's products of bf16 matrices: by the tensor cores' own instruction on CUDA, by the tile that
/// kernels use elsewhere.
double measured_matrix_rate(Device& device);

}  // namespace lily
