// What a GPU is given to do, counted without running it: on any machine, in a second.
//
// Launches depend on the kernels that a GPU has: the same for all that multiply by simdgroup matrices or Metal 4's
// tensor operations (one set of kernels, compiled in two ways), others where there are kernels of their own for CUDA's
// tensor cores. What a GPU of each path counts while it runs is the same as what is counted here, on any machine.
#pragma once

#include <cstdint>
#include <vector>

#include "device/device.h"
#include "model/config.h"

namespace lily {

enum class LaunchPath { kSimdgroupMatrices, kTensorOperations, kCudaTensorCores };

/// The path that GpuOps takes on this device.
LaunchPath path_of(const DeviceInfo& info);

struct LaunchCount {
  const char* path = "";
  Counters decode, prefill;
};

/// Of a prompt of `length` tokens in chunks of `chunk` (0: the backend's choice), into a cache that has room for it,
/// and of `tokens` tokens after it, each with the choice of the next.
LaunchCount count_launches(const ModelConfig& config, LaunchPath path, std::int64_t length, std::int64_t chunk,
                           std::int64_t tokens);

/// Qwen3.6-35B-A3B, one token and one chunk, on each path.
struct FullShapeTrace {
  std::vector<LaunchCount> paths;
  std::int64_t chunk_rows = 0;           // tokens of the chunk
  std::uint64_t least_weight_bytes = 0;  // of the matrices that one token needs
};

FullShapeTrace trace_full_shape();

}  // namespace lily
