// Every tensor of the text model in the MLX 4-bit layout, from its sizes: what `synth` and `convert` write, and by
// which part of the model the bytes are counted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace lily {

/// One weight: a quantised matrix, which is three tensors in a file, or a plain bf16 tensor.
struct LayoutEntry {
  std::string name;  // canonical: "layers.0.mlp.gate" of a matrix, "layers.0.linear_attn.A_log" of a tensor
  std::vector<std::int64_t> shape;  // of the values: [out, in], [experts, out, in], or the tensor's
  int bits = 0;                     // 4 or 8; 0: plain bf16

  std::int64_t values() const;
  std::int64_t bytes() const;  // in the file
};

/// In the order of the forward pass.
std::vector<LayoutEntry> text_layout(const ModelConfig& config);

/// The name that MLX files use: "norm.weight" -> "language_model.model.norm.weight".
std::string mlx_name(std::string_view canonical);

enum class ModelPart { kEmbedTokens, kGatedDelta, kAttention, kExperts, kRouters, kNorms, kLmHead };
constexpr int kModelParts = 7;

/// The part that a tensor or matrix of the text model (canonical name) belongs to.
ModelPart part_of(std::string_view canonical);

/// "embed_tokens", "gated delta", ...
std::string_view part_name(ModelPart part);

}  // namespace lily
