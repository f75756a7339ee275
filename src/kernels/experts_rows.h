// What the two products of the experts in prefill share: the matrices of a tile's expert.
#pragma once

#include "experts_plan.h"
#include "gemm.h"

struct ExpertsRows {
  ExpertRows plan;
  uint hidden;
  uint width;         // moe_intermediate_size
  uint shared_width;  // the shared expert's
  uint stride;        // of a row of act: the larger of both
};

// Rows [rows * expert, rows * (expert + 1)) of a stack.
template <int BITS>
METAL_FUNC QuantizedRows expert_matrix(device const uint* codes, device const bfloat* scales,
                                       device const bfloat* biases, uint expert, uint rows, uint columns) {
  const ulong groups = ulong(expert) * rows * (columns / 64);
  return quantized_rows(codes + groups * 2 * BITS, scales + groups, biases + groups, rows, columns);
}
