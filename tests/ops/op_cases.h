// Random weights, activations and shapes for op tests, for any backend.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "checkpoint/tensor_view.h"
#include "model/config.h"
#include "ops/ops.h"

namespace lily::op_cases {

using Random = std::mt19937;

inline std::vector<float> normal_values(Random& random, std::int64_t count, float deviation = 1.0F) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = deviation * normal(random);
  return values;
}

/// Owns what a QuantizedMatrix views. The dequantised weights have about unit variance over sqrt(in).
class RandomMatrix {
 public:
  RandomMatrix(Random& random, std::int64_t experts, std::int64_t out, std::int64_t in, int bits = 4, int group = 64) {
    view_ = {.experts = experts, .out = out, .in = in, .bits = bits, .group = group};
    codes_.resize(static_cast<std::size_t>(experts * out * in * bits / 32));
    for (std::uint32_t& word : codes_) word = static_cast<std::uint32_t>(random());
    const auto levels = static_cast<float>((1 << bits) - 1);
    const float step = 3.4F / levels / std::sqrt(static_cast<float>(in));
    std::uniform_real_distribution<float> spread(0.5F, 1.5F);
    for (std::int64_t i = 0; i < experts * out * in / group; ++i) {
      const float scale = step * spread(random) * (random() % 2 == 0 ? 1.0F : -1.0F);
      scales_.push_back(to_bfloat16(scale));
      biases_.push_back(to_bfloat16(-scale * levels / 2 * spread(random)));
    }
  }

  QuantizedMatrix view() const {
    QuantizedMatrix view = view_;
    view.codes = codes_;
    view.scales = scales_;
    view.biases = biases_;
    return view;
  }

 private:
  QuantizedMatrix view_;
  std::vector<std::uint32_t> codes_;
  std::vector<BFloat16> scales_, biases_;
};

/// The demo model's shape.
inline ModelConfig demo_shape() {
  return {.hidden_size = 256,
          .num_hidden_layers = 8,
          .vocab_size = 8192,
          .max_position_embeddings = 4096,
          .num_attention_heads = 8,
          .num_key_value_heads = 1,
          .head_dim = 256,
          .rotary_dim = 64,
          .linear_num_key_heads = 2,
          .linear_num_value_heads = 4,
          .linear_key_head_dim = 128,
          .linear_value_head_dim = 128,
          .linear_conv_kernel_dim = 4,
          .num_experts = 32,
          .num_experts_per_tok = 8,
          .moe_intermediate_size = 64,
          .shared_expert_intermediate_size = 64,
          .eos_token_ids = {}};
}

/// Sizes that no specialisation fits: nothing is a power of two, heads of no common size, another kernel, group 32.
inline ModelConfig odd_shape() {
  return {.hidden_size = 192,
          .num_hidden_layers = 8,
          .vocab_size = 203,
          .max_position_embeddings = 4096,
          .num_attention_heads = 6,
          .num_key_value_heads = 2,
          .head_dim = 80,
          .rotary_dim = 20,
          .linear_num_key_heads = 3,
          .linear_num_value_heads = 9,
          .linear_key_head_dim = 36,
          .linear_value_head_dim = 32,
          .linear_conv_kernel_dim = 3,
          .num_experts = 5,
          .num_experts_per_tok = 3,
          .moe_intermediate_size = 96,
          .shared_expert_intermediate_size = 160,
          .group_size = 32,
          .eos_token_ids = {}};
}

/// Qwen3.6-35B-A3B's layer with fewer experts and words.
inline ModelConfig full_shape() {
  return {.hidden_size = 2048,
          .num_hidden_layers = 4,
          .vocab_size = 512,
          .max_position_embeddings = 4096,
          .num_attention_heads = 16,
          .num_key_value_heads = 2,
          .head_dim = 256,
          .rotary_dim = 64,
          .linear_num_key_heads = 16,
          .linear_num_value_heads = 32,
          .linear_key_head_dim = 128,
          .linear_value_head_dim = 128,
          .linear_conv_kernel_dim = 4,
          .num_experts = 16,
          .num_experts_per_tok = 8,
          .moe_intermediate_size = 512,
          .shared_expert_intermediate_size = 512,
          .eos_token_ids = {}};
}

/// One attention layer's weights; `load` gives them to a backend. The other layers below are alike.
struct AttentionCase {
  AttentionCase(Random& random, const ModelConfig& c)
      : q_norm(normal_values(random, c.head_dim)), k_norm(normal_values(random, c.head_dim)) {}
  AttentionWeights load(Ops& ops) const {
    AttentionWeights weights;
    weights.q_norm = ops.load_vector(q_norm);
    weights.k_norm = ops.load_vector(k_norm);
    return weights;
  }
  std::vector<float> q_norm, k_norm;
};

struct GatedDeltaCase {
  GatedDeltaCase(Random& random, const ModelConfig& c)
      : conv1d(normal_values(random, c.conv_channels() * c.linear_conv_kernel_dim, 0.5F)),
        A_log(normal_values(random, c.linear_num_value_heads)),
        dt_bias(normal_values(random, c.linear_num_value_heads)),
        norm(normal_values(random, c.linear_value_head_dim)) {}
  GatedDeltaWeights load(Ops& ops) const {
    GatedDeltaWeights weights;
    weights.conv1d = ops.load_vector(conv1d);
    weights.A_log = ops.load_vector(A_log);
    weights.dt_bias = ops.load_vector(dt_bias);
    weights.norm = ops.load_vector(norm);
    return weights;
  }
  std::vector<float> conv1d, A_log, dt_bias, norm;
};

struct MoeCase {
  MoeCase(Random& random, const ModelConfig& c, int gate_bits = 4, int up_bits = 4)
      : norm(normal_values(random, c.hidden_size)),
        router(random, 1, c.num_experts, c.hidden_size, 8, c.group_size),
        shared_router(random, 1, 1, c.hidden_size, 8, c.group_size),
        gate(random, c.num_experts, c.moe_intermediate_size, c.hidden_size, gate_bits, c.group_size),
        up(random, c.num_experts, c.moe_intermediate_size, c.hidden_size, up_bits, c.group_size),
        down(random, c.num_experts, c.hidden_size, c.moe_intermediate_size, 4, c.group_size),
        shared_gate(random, 1, c.shared_expert_intermediate_size, c.hidden_size, gate_bits, c.group_size),
        shared_up(random, 1, c.shared_expert_intermediate_size, c.hidden_size, up_bits, c.group_size),
        shared_down(random, 1, c.hidden_size, c.shared_expert_intermediate_size, 4, c.group_size) {}
  MoeWeights load(Ops& ops) const {
    const QuantizedMatrix parts[] = {router.view(), shared_router.view()};
    return {ops.load_vector(norm), ops.load_linear(parts),
            ops.load_experts({gate.view(), up.view(), down.view()},
                             {shared_gate.view(), shared_up.view(), shared_down.view()})};
  }
  std::vector<float> norm;
  RandomMatrix router, shared_router, gate, up, down, shared_gate, shared_up, shared_down;
};

/// The largest difference, in units of the root mean square of what is expected.
inline double error_of(std::span<const float> got, std::span<const float> expected) {
  double largest = 0, squares = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double difference = std::abs(static_cast<double>(got[i]) - static_cast<double>(expected[i]));
    if (!(difference <= largest)) largest = difference;  // NaN wins
    squares += static_cast<double>(expected[i]) * static_cast<double>(expected[i]);
  }
  return largest / (std::sqrt(squares / static_cast<double>(expected.size())) + 1e-30);
}

inline std::vector<float> read(Ops& ops, const Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.rows * tensor.cols));
  ops.read(tensor, values);
  return values;
}

}  // namespace lily::op_cases
