#include "benchmark/costs.h"

#include <fmt/format.h>

#include <string>

namespace lily {
namespace {

/// Of a matrix with its scales and biases, where it is quantised.
std::uint64_t bytes_of(const Checkpoint& checkpoint, const std::string& name) {
  std::uint64_t bytes = 0;
  for (const char* part : {".weight", ".scales", ".biases"}) {
    if (checkpoint.has(name + part)) bytes += checkpoint.tensor(name + part).bytes.size();
  }
  return bytes;
}

}  // namespace

std::uint64_t active_weight_bytes(const Checkpoint& checkpoint) {
  const ModelConfig& config = checkpoint.config();
  std::uint64_t experts = 0;
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    for (const char* matrix : {"gate_proj", "up_proj", "down_proj"}) {
      experts += bytes_of(checkpoint, fmt::format("layers.{}.mlp.switch_mlp.{}", layer, matrix));
    }
  }
  const auto count = static_cast<std::uint64_t>(config.num_experts);
  const auto chosen = static_cast<std::uint64_t>(config.num_experts_per_tok);
  return checkpoint.text_bytes() - bytes_of(checkpoint, "embed_tokens") - experts / count * (count - chosen);
}

std::uint64_t active_matrix_bytes(const ModelConfig& c) {
  const std::int64_t heads = c.num_attention_heads * c.head_dim;
  const std::int64_t attention = (c.attention_rows() + heads) * c.hidden_size;
  const std::int64_t delta = (c.linear_rows() + c.value_rows()) * c.hidden_size;
  const std::int64_t experts =
      3 * c.hidden_size * (c.num_experts_per_tok * c.moe_intermediate_size + c.shared_expert_intermediate_size);
  const std::int64_t codes4 = c.vocab_size * c.hidden_size + c.num_attention_layers() * attention +
                              c.num_linear_layers() * delta + c.num_hidden_layers * experts;
  const std::int64_t codes8 = c.num_hidden_layers * (c.num_experts + 1) * c.hidden_size;
  // A group of 64 has a scale and a bias of 2 bytes each.
  return static_cast<std::uint64_t>(codes4 / 2 + codes8 + (codes4 + codes8) / 64 * 4);
}

std::uint64_t decode_bytes(const Checkpoint& checkpoint, std::int64_t context, std::int64_t kv_value_bytes) {
  const ModelConfig& c = checkpoint.config();
  const std::int64_t state = c.num_linear_layers() * c.value_rows() * c.linear_key_head_dim;
  const std::int64_t kv = c.num_attention_layers() * 2 * c.kv_rows() * context;
  return active_weight_bytes(checkpoint) + static_cast<std::uint64_t>(2 * state) * sizeof(float) +
         static_cast<std::uint64_t>(kv * kv_value_bytes);
}

double prefill_operations(const ModelConfig& c, std::int64_t length) {
  const std::int64_t heads = c.num_attention_heads * c.head_dim;
  const std::int64_t delta = c.linear_rows() * c.hidden_size + c.value_rows() * c.hidden_size;
  const std::int64_t attention = c.attention_rows() * c.hidden_size + heads * c.hidden_size + heads * length;
  const std::int64_t moe =
      3 * c.hidden_size * (c.num_experts_per_tok * c.moe_intermediate_size + c.shared_expert_intermediate_size) +
      c.num_experts * c.hidden_size;
  return 2.0 * static_cast<double>(c.num_linear_layers() * delta + c.num_attention_layers() * attention +
                                   c.num_hidden_layers * moe);
}

}  // namespace lily
