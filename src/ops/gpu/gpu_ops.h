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

/// How the operations run, not what they give. The switches are there to measure what an optimisation brings: each
/// leaves one out of an otherwise equal engine. (What a Device does is switched there: Device::set_overlap.)
struct GpuOptions {
  /// Kernels with mma.sync bodies (src/kernels/cuda): on CUDA, and for tests in the emulator.
  enum class TensorCores { kWhereFound, kNever, kEmulated };
  TensorCores tensor_cores = TensorCores::kWhereFound;
  /// Threadgroups that share one token's attention, over all key/value heads. Fewer than 2 for each of these: the cache
  /// is not split.
  std::int64_t attention_groups = 132;
  /// Decode: the device draws the next token and goes on with it. Off: there is no decode_loop(), the host reads the
  /// logits and draws.
  bool tokens_on_device = true;
  /// Decode: a step's launches are recorded once (a graph on CUDA). Off: they are made anew for each token.
  bool recorded_steps = true;
  /// Prefill: the device sorts rows by expert. Off: the host reads which experts were chosen, sorts and writes the
  /// list.
  bool routing_on_device = true;
  /// Prefill on tensor cores: rows of an expert's tile by its load, up to 128. Off: 32 always.
  bool tiles_by_load = true;
  /// Prefill on tensor cores: the delta rule by chunks of 64 tokens. Off: the scan, token by token.
  bool chunked_delta = true;
};

/// `device` must outlive the Ops. Throws Error when the model has a size that no kernel is there for.
std::unique_ptr<Ops> make_gpu_ops(Device& device, const ModelConfig& config, const GpuOptions& options = {});

}  // namespace lily
