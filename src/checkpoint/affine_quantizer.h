// MLX's affine quantisation of groups of 64 values:  w ~ scale * code + bias,  code in [0, 2^bits - 1].
//
// The end of the group's range that is farther from zero is hit exactly, and zero is a code where the range spans it:
//   step  = max((max - min) / (2^bits - 1), 1e-7), negative when the farther end is max
//   code0 = round(end / step);  scale = end / code0, bias = end;  if code0 is 0: scale = step, bias = 0
//   code  = clamp(round((w - bias) / scale))
// with ties to even, in float32. Codes are chosen with scale and bias before these are rounded to bf16.
#pragma once

#include <cstdint>
#include <span>

#include "support/bfloat16.h"

namespace lily {

/// `values`: whole groups of 64. `codes`: values * bits / 32 words, lowest bits first; `scales`, `biases`: one a group.
void quantize_affine(std::span<const float> values, int bits, std::span<std::uint32_t> codes,
                     std::span<BFloat16> scales, std::span<BFloat16> biases);

}  // namespace lily
