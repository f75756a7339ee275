// The model: its sizes and its weights on one backend, and the forward pass over them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "ops/ops.h"

namespace lily {

struct Layer {
  std::variant<GatedDeltaWeights, AttentionWeights> mixer;
  MoeWeights moe;
};

struct Model {
  ModelConfig config;
  Weight embed_tokens;  // [vocab, hidden]
  std::vector<Layer> layers;
  Vector norm;     // [hidden]
  Weight lm_head;  // [vocab, hidden]
};

/// Gives every tensor of the text model to the backend. `progress(done, layers)` is called after each layer.
/// The checkpoint must outlive the model: backends may read its mapped bytes in place.
Model load_model(const Checkpoint& checkpoint, Ops& ops,
                 const std::function<void(std::int64_t, std::int64_t)>& progress = {});

/// Runs `tokens` (the batch's rows in order) through the model; the segments' states move on by their rows.
/// Gives the logits of the wanted `logit_rows`: [logit_rows.size(), vocab].
Tensor forward(Ops& ops, const Model& model, std::span<const std::int32_t> tokens, Batch batch,
               std::span<const std::int64_t> logit_rows);

}  // namespace lily
