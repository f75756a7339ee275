// config.json's `quantization`: bits for every quantised matrix, with overrides by name.
//
//   {"bits": 4, "group_size": 64, "mode": "affine", "language_model.model.layers.0.mlp.gate": {"bits": 8, "group_size":
//   64}}
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "model/config.h"

namespace lily {

class Quantization {
 public:
  /// Reads the overrides from `directory`/config.json; the defaults are in `config`, which read_config has checked.
  Quantization(const std::filesystem::path& directory, const ModelConfig& config);

  /// Bits of the matrix with this canonical name, e.g. "layers.0.mlp.gate".
  int bits(std::string_view name) const;

 private:
  int default_bits_;
  std::map<std::string, int, std::less<>> overrides_;
};

/// The text model's name of a tensor or module without its prefix: "language_model.model.norm.weight" (MLX),
/// "model.language_model.norm.weight" (HF) and "model.norm.weight" (text-only files) are all "norm.weight". Empty for
/// what is not of the text model: vision tower, multi-token prediction.
std::string_view canonical_name(std::string_view name);

}  // namespace lily
