// The GPU backend: implements Ops over a Device (Metal, CUDA or emulated). It chooses kernels and grids; the Device
// knows nothing of language models.
//
// One row (decode) and many rows (prefill) have kernels of their own. Activations between them: the residual stream,
// logits and everything of one row in float32, the rest in bf16.
#pragma once

#include <memory>

#include "device/device.h"
#include "model/config.h"
#include "ops/ops.h"

namespace lily {

struct GpuOptions {
  /// Kernels with mma.sync bodies (src/kernels/cuda): on CUDA, and for tests in the emulator.
  enum class TensorCores { kWhereFound, kNever, kEmulated };
  TensorCores tensor_cores = TensorCores::kWhereFound;
  /// Threadgroups that share one token's attention, over all key/value heads.
  std::int64_t attention_groups = 132;
};

/// `device` must outlive the Ops. Throws Error when the model has a size that no kernel is there for.
std::unique_ptr<Ops> make_gpu_ops(Device& device, const ModelConfig& config, const GpuOptions& options = {});

}  // namespace lily
