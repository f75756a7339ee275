// The op vocabulary as plain loops in double precision: the executable specification that every backend is tested
// against. No SIMD, no threads, no fusion; slow and obvious. Tensors between ops are float32.
#pragma once

#include <memory>

#include "ops/ops.h"

namespace lily {

std::unique_ptr<Ops> make_reference_ops(const ModelConfig& config);

/// A tensor of make_reference_ops() with these values, [rows, cols].
Tensor reference_tensor(std::int64_t rows, std::int64_t cols, std::span<const float> values);

}  // namespace lily
