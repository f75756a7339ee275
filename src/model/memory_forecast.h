// How much memory a model will need, before it is loaded.
#pragma once

#include <cstdint>

#include "model/config.h"

namespace lily {

/// What differs between backends.
struct MemoryTraits {
  std::int64_t kv_value_bytes = 2;          // bf16 on GPUs; float16 on the CPU, with float32 activations float32
  std::int64_t activation_value_bytes = 4;  // float32
  std::int64_t prefill_chunk = 512;         // tokens per forward pass
};
constexpr MemoryTraits kCpuMemory = {.kv_value_bytes = 2};
constexpr MemoryTraits kExactCpuMemory = {.kv_value_bytes = 4};  // --activations float32
constexpr MemoryTraits kGpuMemory = {.kv_value_bytes = 2, .prefill_chunk = 4096};

/// Bytes for one timeline. Snapshots of recurrent state have budgets of their own and are not in it.
struct MemoryForecast {
  std::uint64_t weights = 0;
  std::uint64_t kv_cache = 0;         // grows with the context
  std::uint64_t recurrent_state = 0;  // gated delta state and conv inputs, in float32
  std::uint64_t activations = 0;      // of one prefill chunk

  std::uint64_t total() const { return weights + kv_cache + recurrent_state + activations; }
};

/// `weights`: bytes of the text model's tensors, Checkpoint::text_bytes(). `context`: tokens, prompt and reply.
MemoryForecast forecast_memory(const ModelConfig& config, std::uint64_t weights, std::int64_t context,
                               const MemoryTraits& traits);

/// Throws Error, with the largest context that would fit as the hint, when the forecast is more than this machine has
/// available. Does nothing where the system does not tell.
void require_memory(const ModelConfig& config, std::uint64_t weights, std::int64_t context, const MemoryTraits& traits);

/// The same against a known amount.
void require_memory(const ModelConfig& config, std::uint64_t weights, std::int64_t context, const MemoryTraits& traits,
                    std::uint64_t available);

}  // namespace lily
