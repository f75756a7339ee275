#include "checkpoint/layout.h"

#include <fmt/format.h>

#include <array>
#include <functional>
#include <numeric>

namespace lily {
namespace {

constexpr std::int64_t kGroup = 64;

class Builder {
 public:
  explicit Builder(const ModelConfig& config) : c_(config) {}

  std::vector<LayoutEntry> build() {
    matrix("embed_tokens", {c_.vocab_size, c_.hidden_size});
    for (std::int64_t i = 0; i < c_.num_hidden_layers; ++i) layer(i);
    tensor("norm.weight", {c_.hidden_size});
    matrix("lm_head", {c_.vocab_size, c_.hidden_size});
    return std::move(entries_);
  }

 private:
  void layer(std::int64_t index) {
    prefix_ = fmt::format("layers.{}.", index);
    tensor("input_layernorm.weight", {c_.hidden_size});
    c_.full_attention(index) ? full_attention() : gated_delta_net();
    tensor("post_attention_layernorm.weight", {c_.hidden_size});
    mixture_of_experts();
    prefix_.clear();
  }

  void gated_delta_net() {
    const std::int64_t heads = c_.linear_num_value_heads;
    matrix("linear_attn.in_proj_qkv", {c_.conv_channels(), c_.hidden_size});
    matrix("linear_attn.in_proj_z", {c_.value_rows(), c_.hidden_size});
    matrix("linear_attn.in_proj_b", {heads, c_.hidden_size});
    matrix("linear_attn.in_proj_a", {heads, c_.hidden_size});
    tensor("linear_attn.conv1d.weight", {c_.conv_channels(), c_.linear_conv_kernel_dim, 1});
    tensor("linear_attn.A_log", {heads});
    tensor("linear_attn.dt_bias", {heads});
    tensor("linear_attn.norm.weight", {c_.linear_value_head_dim});
    matrix("linear_attn.out_proj", {c_.hidden_size, c_.value_rows()});
  }

  void full_attention() {
    matrix("self_attn.q_proj", {c_.query_rows(), c_.hidden_size});
    matrix("self_attn.k_proj", {c_.kv_rows(), c_.hidden_size});
    matrix("self_attn.v_proj", {c_.kv_rows(), c_.hidden_size});
    tensor("self_attn.q_norm.weight", {c_.head_dim});
    tensor("self_attn.k_norm.weight", {c_.head_dim});
    matrix("self_attn.o_proj", {c_.hidden_size, c_.num_attention_heads * c_.head_dim});
  }

  void mixture_of_experts() {
    const std::int64_t routed = c_.moe_intermediate_size;
    const std::int64_t shared = c_.shared_expert_intermediate_size;
    matrix("mlp.gate", {c_.num_experts, c_.hidden_size}, 8);
    matrix("mlp.shared_expert_gate", {1, c_.hidden_size}, 8);
    matrix("mlp.switch_mlp.gate_proj", {c_.num_experts, routed, c_.hidden_size});
    matrix("mlp.switch_mlp.up_proj", {c_.num_experts, routed, c_.hidden_size});
    matrix("mlp.switch_mlp.down_proj", {c_.num_experts, c_.hidden_size, routed});
    matrix("mlp.shared_expert.gate_proj", {shared, c_.hidden_size});
    matrix("mlp.shared_expert.up_proj", {shared, c_.hidden_size});
    matrix("mlp.shared_expert.down_proj", {c_.hidden_size, shared});
  }

  void matrix(const char* name, std::vector<std::int64_t> shape, int bits = 4) {
    entries_.push_back({.name = prefix_ + name, .shape = std::move(shape), .bits = bits});
  }
  void tensor(const char* name, std::vector<std::int64_t> shape) { matrix(name, std::move(shape), 0); }

  const ModelConfig& c_;
  std::string prefix_;
  std::vector<LayoutEntry> entries_;
};

}  // namespace

std::int64_t LayoutEntry::values() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t LayoutEntry::bytes() const {
  if (bits == 0) return values() * 2;
  return values() * bits / 8 + values() / kGroup * 4;  // codes, and a bf16 scale and bias per group
}

std::vector<LayoutEntry> text_layout(const ModelConfig& config) {
  return Builder(config).build();
}

std::string mlx_name(std::string_view canonical) {
  return fmt::format("language_model.{}{}", canonical.starts_with("lm_head") ? "" : "model.", canonical);
}

ModelPart part_of(std::string_view canonical) {
  const auto has = [&](std::string_view text) { return canonical.find(text) != std::string_view::npos; };
  if (canonical.starts_with("embed_tokens")) return ModelPart::kEmbedTokens;
  if (canonical.starts_with("lm_head")) return ModelPart::kLmHead;
  if (has(".linear_attn.")) return ModelPart::kGatedDelta;
  if (has(".self_attn.")) return ModelPart::kAttention;
  const std::string dotted = fmt::format("{}.", canonical);  // ".mlp.gate" itself, but not ".mlp.gate_proj"
  for (const char* router : {".mlp.gate.", ".mlp.shared_expert_gate."}) {
    if (dotted.find(router) != std::string::npos) return ModelPart::kRouters;
  }
  return has(".mlp.") ? ModelPart::kExperts : ModelPart::kNorms;
}

std::string_view part_name(ModelPart part) {
  constexpr std::array<std::string_view, kModelParts> kNames = {"embed_tokens", "gated delta", "attention", "experts",
                                                                "routers",      "norms",       "lm_head"};
  return kNames[static_cast<std::size_t>(part)];
}

}  // namespace lily
