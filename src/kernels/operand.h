// The order in which prefill keeps activations that go into matrix products: bf16, and of each 8 consecutive values the
// order 0 4 1 5 2 6 3 7. It is the order in which masks and shifts take 4-bit codes out of a word two at a time; sums
// over the columns do not care.
#pragma once

#include "numeric.h"

METAL_FUNC uint operand_place(uint column) {
  const uint in_group = column % 8;
  return column - in_group + (in_group < 4 ? 2 * in_group : 2 * in_group - 7);
}
// 8 consecutive values, in that order.
METAL_FUNC vec<uint, 4> operand_words(thread const float* v) {
  vec<uint, 4> words;
  METAL_PRAGMA_UNROLL
  for (int i = 0; i < 4; ++i) words[i] = pair_of(bfloat(v[i]), bfloat(v[i + 4]));
  return words;
}
