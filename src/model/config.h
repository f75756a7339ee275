// The sizes of a qwen3_5_moe text model, from config.json. Field names are Hugging Face's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lily {

struct ModelConfig {
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t vocab_size = 0;
  float rms_norm_eps = 1e-6F;
  std::int64_t max_position_embeddings = 0;

  // Full attention, every `full_attention_interval`-th layer.
  std::int64_t full_attention_interval = 4;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  double rope_theta = 1e7;
  std::int64_t rotary_dim = 0;  // head_dim * partial_rotary_factor

  // Gated DeltaNet, all other layers.
  std::int64_t linear_num_key_heads = 0;
  std::int64_t linear_num_value_heads = 0;
  std::int64_t linear_key_head_dim = 0;
  std::int64_t linear_value_head_dim = 0;
  std::int64_t linear_conv_kernel_dim = 4;

  // Mixture of experts.
  std::int64_t num_experts = 0;
  std::int64_t num_experts_per_tok = 0;
  std::int64_t moe_intermediate_size = 0;
  std::int64_t shared_expert_intermediate_size = 0;

  // `quantization` in config.json: the default for every quantised matrix, before per-tensor overrides.
  bool quantized = false;  // false: plain weights, as Hugging Face's bf16 files have them
  int bits = 4;
  int group_size = 64;

  // generation_config.json's ids where it is there, else config.json's.
  std::vector<std::int32_t> eos_token_ids;

  bool full_attention(std::int64_t layer) const { return (layer + 1) % full_attention_interval == 0; }
  std::int64_t num_attention_layers() const { return num_hidden_layers / full_attention_interval; }
  std::int64_t num_linear_layers() const { return num_hidden_layers - num_attention_layers(); }

  // Rows of the fused input projections, in this order.
  std::int64_t query_rows() const { return 2 * num_attention_heads * head_dim; }  // per head: query, then gate
  std::int64_t kv_rows() const { return num_key_value_heads * head_dim; }
  std::int64_t attention_rows() const { return query_rows() + 2 * kv_rows(); }  // q + gate | k | v
  std::int64_t conv_channels() const {                                          // q | k | v of the delta rule
    return 2 * linear_num_key_heads * linear_key_head_dim + value_rows();
  }
  std::int64_t value_rows() const { return linear_num_value_heads * linear_value_head_dim; }
  std::int64_t linear_rows() const {  // q | k | v | z | b | a
    return conv_channels() + value_rows() + 2 * linear_num_value_heads;
  }
};

/// Reads and checks config.json and generation_config.json. Errors name the file, the field, found and expected.
/// Accepts the text model's fields nested in `text_config` or at the top level. Every size is positive, bounded (no
/// product of sizes overflows) and divisible as the kernels need it: inputs of quantised matrices by 64, value heads by
/// key heads, heads by KV heads.
ModelConfig read_config(const std::filesystem::path& directory);

}  // namespace lily
