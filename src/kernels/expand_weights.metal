// out = W in bf16 and operand order, for products that take it from memory instead of the codes. A thread makes 8
// values.
#include "operand.h"

template <int BITS, int THREADS>
kernel void expand_weights(device const uint* codes [[buffer(0)]], device const bfloat* scales [[buffer(1)]],
                           device const bfloat* biases [[buffer(2)]], device uint* out [[buffer(3)]],
                           constant uint& eights [[buffer(4)]], uint3 group [[threadgroup_position_in_grid]],
                           uint tid [[thread_index_in_threadgroup]]) {
  constexpr uint PER_WORD = 32 / BITS;
  const uint i = group.x * THREADS + tid;
  if (i >= eights) return;
  const float scale = float(scales[i / 8]), bias = float(biases[i / 8]);
  float v[8];
  METAL_PRAGMA_UNROLL
  for (uint j = 0; j < 8; ++j) {
    const uint word = codes[ulong(i) * (8 / PER_WORD) + j / PER_WORD];
    v[j] = scale * float((word >> (j % PER_WORD * BITS)) & ((1u << BITS) - 1u)) + bias;
  }
  ((device vec<uint, 4>*)out)[i] = operand_words(v);
}
ENTRY(expand_weights_q4, 256, expand_weights<4, 256>)
ENTRY(expand_weights_q8, 256, expand_weights<8, 256>)
