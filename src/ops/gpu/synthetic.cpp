#include "ops/gpu/synthetic.h"

#include <cmath>

#include "kernels/kernels.h"
#include "ops/gpu/state.h"
#include "ops/gpu/storage.h"

namespace lily {
namespace {

class Maker {
 public:
  Maker(Device& device, Ops& ops) : device_(device), ops_(ops) {}

  Weight linear(std::int64_t out, std::int64_t in, int bits = 4) {
    auto storage = std::make_shared<gpu::MatrixStorage>();
    storage->matrix = matrix(1, out, in, bits);
    return {std::move(storage), out, in};
  }
  std::shared_ptr<const Storage> experts(const ModelConfig& c) {
    auto storage = std::make_shared<gpu::Experts>();
    const std::int64_t hidden = c.hidden_size, shared = c.shared_expert_intermediate_size;
    storage->count = c.num_experts;
    storage->gate = matrix(c.num_experts, c.moe_intermediate_size, hidden, 4);
    storage->up = matrix(c.num_experts, c.moe_intermediate_size, hidden, 4);
    storage->down = matrix(c.num_experts, hidden, c.moe_intermediate_size, 4);
    storage->shared_gate = matrix(1, shared, hidden, 4);
    storage->shared_up = matrix(1, shared, hidden, 4);
    storage->shared_down = matrix(1, hidden, shared, 4);
    return storage;
  }
  Vector vector(std::int64_t size, float value) {
    return ops_.load_vector(std::vector<float>(static_cast<std::size_t>(size), value));
  }

 private:
  gpu::Matrix matrix(std::int64_t experts, std::int64_t out, std::int64_t in, int bits) {
    gpu::Matrix m;
    m.out = out;
    m.in = in;
    m.bits = bits;
    const std::int64_t values = experts * out * in;
    m.codes = device_.allocate(static_cast<std::size_t>(values * bits / 8));
    m.scales = device_.allocate(static_cast<std::size_t>(values / 32));
    m.biases = device_.allocate(static_cast<std::size_t>(values / 32));
    const auto levels = static_cast<float>((1 << bits) - 1);
    const float scale = 3.46F / levels / std::sqrt(static_cast<float>(in));
    const auto words = static_cast<uint>(m.codes->size() / 4);
    device_.dispatch(kernels::random_words, {.groups = {2048}}, m.codes->view<uint>(), words, ++seed_);
    fill(*m.scales, scale, 0.3F);
    fill(*m.biases, -scale * levels / 2, 0.02F);
    return m;
  }
  void fill(const Buffer& buffer, float base, float spread) {
    device_.dispatch(kernels::random_values, {.groups = {256}}, buffer.view<uint>(),
                     RandomValues{static_cast<uint>(buffer.size() / 4), ++seed_, base, spread});
  }

  Device& device_;
  Ops& ops_;
  uint seed_ = 0;
};

}  // namespace

ModelConfig full_shape() {
  ModelConfig c;
  c.hidden_size = 2048;
  c.num_hidden_layers = 40;
  c.vocab_size = 248320;
  c.max_position_embeddings = 262144;
  c.num_attention_heads = 16;
  c.num_key_value_heads = 2;
  c.head_dim = 256;
  c.rotary_dim = 64;
  c.linear_num_key_heads = 16;
  c.linear_num_value_heads = 32;
  c.linear_key_head_dim = 128;
  c.linear_value_head_dim = 128;
  c.num_experts = 256;
  c.num_experts_per_tok = 8;
  c.moe_intermediate_size = 512;
  c.shared_expert_intermediate_size = 512;
  return c;
}

Model make_synthetic_model(Device& device, Ops& ops, const ModelConfig& c) {
  Maker make(device, ops);
  Model model;
  model.config = c;
  model.embed_tokens = make.linear(c.vocab_size, c.hidden_size);
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i) {
    Layer layer;
    if (c.full_attention(i)) {
      layer.mixer = AttentionWeights{make.vector(c.hidden_size, 1.0F), make.linear(c.attention_rows(), c.hidden_size),
                                     make.vector(c.head_dim, 1.0F), make.vector(c.head_dim, 1.0F),
                                     make.linear(c.hidden_size, c.num_attention_heads * c.head_dim)};
    } else {
      layer.mixer = GatedDeltaWeights{make.vector(c.hidden_size, 1.0F),
                                      make.linear(c.linear_rows(), c.hidden_size),
                                      make.vector(c.conv_channels() * c.linear_conv_kernel_dim, 0.5F),
                                      make.vector(c.linear_num_value_heads, 0.5F),
                                      make.vector(c.linear_num_value_heads, -1.0F),
                                      make.vector(c.linear_value_head_dim, 1.0F),
                                      make.linear(c.hidden_size, c.value_rows())};
    }
    layer.moe = {make.vector(c.hidden_size, 1.0F), make.linear(c.num_experts + 1, c.hidden_size, 8), make.experts(c)};
    model.layers.push_back(std::move(layer));
  }
  model.norm = make.vector(c.hidden_size, 1.0F);
  model.lm_head = make.linear(c.vocab_size, c.hidden_size);
  device.wait(device.submit());
  return model;
}

void fill_cache(Device& device, const ModelConfig& config, SequenceState& sequence, std::int64_t tokens) {
  auto& state = static_cast<gpu::State&>(sequence);
  state.reserve(tokens);
  for (std::int64_t layer = 0; layer < config.num_attention_layers(); ++layer) {
    for (const gpu::State::Range& range : {state.keys(layer), state.values(layer)}) {
      device.dispatch(kernels::random_values, {.groups = {256}},
                      range.buffer->view<uint>(range.offset).part(0, range.bytes / 4),
                      RandomValues{static_cast<uint>(range.bytes / 4), static_cast<uint>(layer), 0.02F, 50.0F});
    }
  }
  device.wait(device.submit());
}

}  // namespace lily
