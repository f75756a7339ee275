// What a GPU is given to do at the sizes of Qwen3.6-35B-A3B, counted without running it: on any machine, in a second.
#pragma once

#include <cstdint>

#include "device/device.h"

namespace lily {

struct FullShapeTrace {
  Counters token;                        // one decoded token, with the choice of the next
  Counters chunk;                        // one chunk of a prompt
  std::int64_t chunk_rows = 0;           // its tokens
  std::uint64_t least_weight_bytes = 0;  // of the matrices that one token needs
};

FullShapeTrace trace_full_shape();

}  // namespace lily
