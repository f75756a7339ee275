// The forward pass, once: for one token or many, one timeline or several, on every backend.
//
//   x  = embed(tokens)
//   x += mixer(rms_norm(x, input_layernorm))            gated delta net, or full attention in every fourth layer
//   x += moe(rms_norm(x, post_attention_layernorm))
//   logits = lm_head(rms_norm(x, norm))
#include "model/model.h"

namespace lily {
namespace {

void gated_delta_net(Ops& ops, const ModelConfig& config, const GatedDeltaWeights& weights, std::int64_t index,
                     Batch batch, Tensor& x) {
  Tensor qkvzba = ops.tensor(x.rows, config.linear_rows());
  Tensor mixed = ops.tensor(x.rows, config.value_rows());
  ops.project(x, weights.input_layernorm, weights.in_proj, qkvzba);
  ops.gated_delta(qkvzba, weights, index, batch, mixed);
  ops.project_add(mixed, weights.out_proj, x);
}

void full_attention(Ops& ops, const ModelConfig& config, const AttentionWeights& weights, std::int64_t index,
                    Batch batch, Tensor& x) {
  Tensor qkv = ops.tensor(x.rows, config.attention_rows());
  Tensor mixed = ops.tensor(x.rows, config.num_attention_heads * config.head_dim);
  ops.project(x, weights.input_layernorm, weights.in_proj, qkv);
  ops.attention(qkv, weights, index, batch, mixed);
  ops.project_add(mixed, weights.o_proj, x);
}

}  // namespace

Tensor forward(Ops& ops, const Model& model, std::span<const std::int32_t> tokens, Batch batch,
               std::span<const std::int64_t> logit_rows) {
  const ModelConfig& config = model.config;
  Tensor x = ops.tensor(static_cast<std::int64_t>(tokens.size()), config.hidden_size);
  ops.embed(model.embed_tokens, tokens, x);

  std::int64_t delta_index = 0;
  std::int64_t attention_index = 0;
  for (const Layer& layer : model.layers) {
    if (const auto* delta = std::get_if<GatedDeltaWeights>(&layer.mixer)) {
      gated_delta_net(ops, config, *delta, delta_index++, batch, x);
    } else {
      full_attention(ops, config, std::get<AttentionWeights>(layer.mixer), attention_index++, batch, x);
    }
    ops.mixture_of_experts(layer.moe, x);
  }

  Tensor logits = ops.tensor(static_cast<std::int64_t>(logit_rows.size()), config.vocab_size);
  if (!logit_rows.empty()) ops.lm_head(x, model.norm, model.lm_head, logit_rows, logits);
  return logits;
}

}  // namespace lily
