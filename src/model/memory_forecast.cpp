#include "model/memory_forecast.h"

#include <algorithm>

#include "support/error.h"
#include "support/machine_memory.h"

namespace lily {
namespace {

std::uint64_t kv_bytes_per_token(const ModelConfig& c, const MemoryTraits& traits) {
  return static_cast<std::uint64_t>(c.num_attention_layers() * 2 * c.kv_rows() * traits.kv_value_bytes);
}

/// Values per token that are alive at once in the widest place: the residual stream and its norm, the projections of
/// the mixer and its output, and the rows of the chosen experts.
std::int64_t activation_values(const ModelConfig& c) {
  const std::int64_t residual = 2 * c.hidden_size;
  const std::int64_t mixer =
      std::max(c.linear_rows() + c.value_rows(), c.attention_rows() + c.num_attention_heads * c.head_dim);
  const std::int64_t experts = c.num_experts_per_tok * (2 * c.moe_intermediate_size + c.hidden_size) +
                               2 * c.shared_expert_intermediate_size + c.num_experts;
  return residual + mixer + experts;
}

double gigabytes(std::uint64_t bytes) {
  return static_cast<double>(bytes) / 1e9;
}

}  // namespace

MemoryForecast forecast_memory(const ModelConfig& config, std::uint64_t weights, std::int64_t context,
                               const MemoryTraits& traits) {
  const std::int64_t state = config.value_rows() * config.linear_key_head_dim;
  const std::int64_t conv = (config.linear_conv_kernel_dim - 1) * config.conv_channels();
  const std::int64_t rows = std::min(traits.prefill_chunk, context);
  return {.weights = weights,
          .kv_cache = static_cast<std::uint64_t>(context) * kv_bytes_per_token(config, traits),
          .recurrent_state = static_cast<std::uint64_t>(config.num_linear_layers() * (state + conv)) * sizeof(float),
          .activations = static_cast<std::uint64_t>((rows * activation_values(config) + config.vocab_size) *
                                                    traits.activation_value_bytes)};
}

void require_memory(const ModelConfig& config, std::uint64_t weights, std::int64_t context,
                    const MemoryTraits& traits) {
  if (const auto memory = machine_memory()) require_memory(config, weights, context, traits, memory->available);
}

void require_memory(const ModelConfig& config, std::uint64_t weights, std::int64_t context, const MemoryTraits& traits,
                    std::uint64_t available) {
  const std::uint64_t needed = forecast_memory(config, weights, context, traits).total();
  if (needed <= available) return;
  const std::uint64_t per_token = std::max<std::uint64_t>(1, kv_bytes_per_token(config, traits));
  const std::uint64_t without_cache = needed - static_cast<std::uint64_t>(context) * per_token;
  std::string hint = "close other programs, or use a machine with more memory";
  if (without_cache < available) {
    const std::uint64_t fits = (available - without_cache) / per_token / 256 * 256;
    if (fits > 0) hint = fmt::format("a context of {} tokens would fit: --ctx {}", fits, fits);
  }
  throw Error(fmt::format("a context of {} tokens needs {:.1f} GB of memory, {:.1f} GB are available", context,
                          gigabytes(needed), gigabytes(available)),
              hint);
}

}  // namespace lily
