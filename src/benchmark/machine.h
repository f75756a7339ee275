// What the machine can do at best, measured here and now.
#pragma once

#include "device/device.h"

namespace lily {

/// Bytes per second that `threads` (0: all usable cores) read from memory that does not fit the caches; the best of
/// several passes.
double measured_read_bandwidth(int threads);

/// The same for a GPU: bytes read and written by a copy of its memory.
double measured_copy_bandwidth(Device& device);

}  // namespace lily
