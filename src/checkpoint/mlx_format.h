// How MLX writes a 4-bit checkpoint: the tensors of each weight and the `quantization` of config.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/layout.h"

namespace lily {

constexpr std::int64_t kMlxGroup = 64;

/// A matrix: .weight (packed codes), .scales and .biases, in this order. A plain tensor: itself, in bf16.
std::vector<TensorSpec> mlx_tensors(const LayoutEntry& entry);

/// 4 bits, groups of 64, and 8 bits for the routers.
nlohmann::json mlx_quantization(const ModelConfig& config);

}  // namespace lily
