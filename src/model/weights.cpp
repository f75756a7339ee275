// Every tensor of the text model by its name, with the shape that config.json promises, given to the backend.
#include <fmt/format.h>

#include <array>
#include <string>

#include "model/model.h"

namespace lily {
namespace {

class Loader {
 public:
  Loader(const Checkpoint& checkpoint, Ops& ops) : checkpoint_(checkpoint), config_(checkpoint.config()), ops_(ops) {}

  Vector vector(const std::string& name, std::initializer_list<std::int64_t> shape) const {
    return ops_.load_vector(checkpoint_.floats(name, shape));
  }

  QuantizedMatrix matrix(const std::string& name, std::int64_t out, std::int64_t in) const {
    return checkpoint_.matrix(name, 1, out, in);
  }

  Weight linear(const std::string& name, std::int64_t out, std::int64_t in) const {
    return ops_.load_linear(std::array{matrix(name, out, in)});
  }

  GatedDeltaWeights gated_delta_net(const std::string& layer) const {
    const ModelConfig& c = config_;
    const std::string p = layer + "linear_attn.";
    const std::int64_t heads = c.linear_num_value_heads;
    return {
        .input_layernorm = vector(layer + "input_layernorm.weight", {c.hidden_size}),
        .in_proj = ops_.load_linear(std::array{
            matrix(p + "in_proj_qkv", c.conv_channels(), c.hidden_size),
            matrix(p + "in_proj_z", c.value_rows(), c.hidden_size),
            matrix(p + "in_proj_b", heads, c.hidden_size),
            matrix(p + "in_proj_a", heads, c.hidden_size),
        }),
        .conv1d = vector(p + "conv1d.weight", {c.conv_channels(), c.linear_conv_kernel_dim, 1}),
        .A_log = vector(p + "A_log", {heads}),
        .dt_bias = vector(p + "dt_bias", {heads}),
        .norm = vector(p + "norm.weight", {c.linear_value_head_dim}),
        .out_proj = linear(p + "out_proj", c.hidden_size, c.value_rows()),
    };
  }

  AttentionWeights full_attention(const std::string& layer) const {
    const ModelConfig& c = config_;
    const std::string p = layer + "self_attn.";
    return {
        .input_layernorm = vector(layer + "input_layernorm.weight", {c.hidden_size}),
        .in_proj = ops_.load_linear(std::array{
            matrix(p + "q_proj", c.query_rows(), c.hidden_size),
            matrix(p + "k_proj", c.kv_rows(), c.hidden_size),
            matrix(p + "v_proj", c.kv_rows(), c.hidden_size),
        }),
        .q_norm = vector(p + "q_norm.weight", {c.head_dim}),
        .k_norm = vector(p + "k_norm.weight", {c.head_dim}),
        .o_proj = linear(p + "o_proj", c.hidden_size, c.num_attention_heads * c.head_dim),
    };
  }

  MoeWeights mixture_of_experts(const std::string& layer) const {
    const ModelConfig& c = config_;
    const std::string p = layer + "mlp.";
    return {
        .post_attention_layernorm = vector(layer + "post_attention_layernorm.weight", {c.hidden_size}),
        .router = ops_.load_linear(std::array{
            matrix(p + "gate", c.num_experts, c.hidden_size),
            matrix(p + "shared_expert_gate", 1, c.hidden_size),
        }),
        .experts = ops_.load_experts(mlp(p + "switch_mlp.", c.num_experts, c.moe_intermediate_size),
                                     mlp(p + "shared_expert.", 1, c.shared_expert_intermediate_size)),
    };
  }

 private:
  MlpMatrices mlp(const std::string& p, std::int64_t experts, std::int64_t intermediate) const {
    const std::int64_t hidden = config_.hidden_size;
    return {
        .gate_proj = checkpoint_.matrix(p + "gate_proj", experts, intermediate, hidden),
        .up_proj = checkpoint_.matrix(p + "up_proj", experts, intermediate, hidden),
        .down_proj = checkpoint_.matrix(p + "down_proj", experts, hidden, intermediate),
    };
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  Ops& ops_;
};

}  // namespace

Model load_model(const Checkpoint& checkpoint, Ops& ops,
                 const std::function<void(std::int64_t, std::int64_t)>& progress) {
  const ModelConfig& config = checkpoint.config();
  const Loader load(checkpoint, ops);
  Model model;
  model.config = config;
  model.embed_tokens = ops.load_table(load.matrix("embed_tokens", config.vocab_size, config.hidden_size));
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const std::string name = fmt::format("layers.{}.", i);
    Layer layer;
    if (config.full_attention(i)) {
      layer.mixer = load.full_attention(name);
    } else {
      layer.mixer = load.gated_delta_net(name);
    }
    layer.moe = load.mixture_of_experts(name);
    model.layers.push_back(std::move(layer));
    if (progress) progress(i + 1, config.num_hidden_layers);
  }
  model.norm = load.vector("norm.weight", {config.hidden_size});
  model.lm_head = load.linear("lm_head", config.vocab_size, config.hidden_size);
  return model;
}

}  // namespace lily
