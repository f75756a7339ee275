// What the many-row kernels of the gated delta rule share. A chunk is consecutive tokens of one timeline.
//
//   conv_rows     q, k, v of the chunk [rows, channels] in bf16: silu(conv), q and k with their norms and scales
//   conv_ring     the chunk's last inputs into the ring, by position
//   gate_rows     log g and beta [rows, 2, value heads] in float32
//   delta_rows    the recurrence; y [rows, value rows] in bf16
//   gated_norm_rows   rms_norm(y, norm) * silu(z) in operand order
#pragma once

#include "lily.h"

struct DeltaRows {
  uint rows;      // of the chunk
  uint position;  // of its first token
  uint key_heads;
  uint value_heads;
  uint stride;  // of a row of `projected`: q | k | v | z | b | a
  float eps;
};
