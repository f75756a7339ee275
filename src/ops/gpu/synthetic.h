// A model of made-up weights, made on the device itself: for benchmarks and counters at sizes that no file here has.
#pragma once

#include "model/model.h"
#include "ops/gpu/gpu_ops.h"

namespace lily {

/// Qwen3.6-35B-A3B's sizes.
ModelConfig full_shape();

/// The weights keep activations at about unit size. `ops` came from make_gpu_ops for the same device and config.
Model make_synthetic_model(Device& device, Ops& ops, const ModelConfig& config);

/// Fills the state's KV cache up to `tokens` with made-up keys and values.
void fill_cache(Device& device, const ModelConfig& config, SequenceState& state, std::int64_t tokens);

}  // namespace lily
