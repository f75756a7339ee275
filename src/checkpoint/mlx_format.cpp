#include "checkpoint/mlx_format.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace lily {

std::vector<TensorSpec> mlx_tensors(const LayoutEntry& entry) {
  const std::string name = mlx_name(entry.name);
  if (entry.bits == 0) return {{.name = name, .dtype = DType::kBF16, .shape = entry.shape}};
  std::vector<std::int64_t> words = entry.shape;
  words.back() = words.back() * entry.bits / 32;
  std::vector<std::int64_t> groups = entry.shape;
  groups.back() /= kMlxGroup;
  return {{.name = name + ".weight", .dtype = DType::kU32, .shape = words},
          {.name = name + ".scales", .dtype = DType::kBF16, .shape = groups},
          {.name = name + ".biases", .dtype = DType::kBF16, .shape = groups}};
}

nlohmann::json mlx_quantization(const ModelConfig& config) {
  nlohmann::json quantization = {{"group_size", kMlxGroup}, {"bits", 4}, {"mode", "affine"}};
  for (const LayoutEntry& entry : text_layout(config)) {
    if (entry.bits != 8) continue;
    quantization[mlx_name(entry.name)] = {{"group_size", kMlxGroup}, {"bits", entry.bits}};
  }
  return quantization;
}

}  // namespace lily
