// x[r] = table[token], 4 bits: w = scale * code + bias. One threadgroup a row.
#include "numeric.h"
#include "step_state.h"

struct Embed {
  uint columns;
  uint vocab;
};

template <int THREADS>
METAL_FUNC void embed_row(device const uint* codes, device const bfloat* scales, device const bfloat* biases,
                          device float* out, uint token, uint columns, uint tid) {
  for (uint word = tid; word < columns / 8; word += THREADS) {
    const uint q = codes[ulong(token) * (columns / 8) + word];
    const ulong group = ulong(token) * (columns / 64) + word / 8;
    const float scale = float(scales[group]), bias = float(biases[group]);
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < 8; ++i) out[word * 8 + i] = scale * float((q >> (4 * i)) & 15u) + bias;
  }
}

// The tokens that the host gave, one a row.
template <int THREADS>
kernel void embed_rows(device const uint* codes [[buffer(0)]], device const bfloat* scales [[buffer(1)]],
                       device const bfloat* biases [[buffer(2)]], device const uint* tokens [[buffer(3)]],
                       device float* x [[buffer(4)]], constant Embed& p [[buffer(5)]],
                       uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]]) {
  embed_row<THREADS>(codes, scales, biases, x + ulong(group.x) * p.columns, min(tokens[group.x], p.vocab - 1),
                     p.columns, tid);
}
ENTRY(embed_rows_q4, 128, embed_rows<128>)

// The token that was drawn last.
template <int THREADS>
kernel void embed_drawn(device const uint* codes [[buffer(0)]], device const bfloat* scales [[buffer(1)]],
                        device const bfloat* biases [[buffer(2)]], device const uint* tokens [[buffer(3)]],
                        device const StepState* step [[buffer(4)]], device float* x [[buffer(5)]],
                        constant Embed& p [[buffer(6)]], uint tid [[thread_index_in_threadgroup]]) {
  wait_for_inputs();
  embed_row<THREADS>(codes, scales, biases, x, min(tokens[step->drawn % kTokenSlots], p.vocab - 1), p.columns, tid);
}
ENTRY_PREFETCH(embed_drawn_q4, 256, embed_drawn<256>)
