// q, k, v = silu(conv(projected)), then q = q / |q|_rms / D, k = k / |k|_rms / sqrt(D) per head of D channels, in bf16.
// A lane has 8 channels, so a head is D / 8 lanes; a simdgroup makes 256 channels of ROWS tokens, moving along the
// conv's window.
#include "delta_rows.h"
#include "numeric.h"

template <int D, int ROWS>
kernel void conv_rows(device const bfloat* projected [[buffer(0)]], device const float* taps [[buffer(1)]],
                      device const float* ring [[buffer(2)]], device bfloat* qkv [[buffer(3)]],
                      constant DeltaRows& p [[buffer(4)]], uint3 group [[threadgroup_position_in_grid]],
                      uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  const uint key_rows = p.key_heads * D, channels = 2 * key_rows + p.value_heads * D;
  const uint channel = (group.x * 4 + sg) * 256 + lane * 8;
  const uint first = group.y * ROWS;
  if (channel - lane * 8 >= channels) return;  // whole simdgroups
  const bool inside = channel < channels;
  float tap[8][4], window[4][8];  // window[t % 4]: the input of token t
  METAL_PRAGMA_UNROLL
  for (uint i = 0; i < 8; ++i) {
    const vec<float, 4> four = ((device const vec<float, 4>*)taps)[inside ? channel + i : 0u];
    METAL_PRAGMA_UNROLL
    for (int j = 0; j < 4; ++j) tap[i][j] = four[j];
  }
  METAL_PRAGMA_UNROLL
  for (uint back = 3; back > 0; --back) {  // the three tokens before the first
    thread float* v = window[(4 - back) % 4];
    if (!inside) {
      for (int i = 0; i < 8; ++i) v[i] = 0.f;
    } else if (first >= back) {
      read_bf16x8(projected + ulong(first - back) * p.stride + channel, v);
    } else {
      read_floats<8>(ring + (p.position + first - back) % 4 * channels + channel, v);
    }
  }
  METAL_PRAGMA_UNROLL
  for (uint t = 0; t < ROWS; ++t) {
    const uint row = first + t;
    if (row >= p.rows) break;
    float now[8], v[8], squares = 0.f;
    if (inside) {
      read_bf16x8(projected + ulong(row) * p.stride + channel, now);
    } else {
      for (int i = 0; i < 8; ++i) now[i] = 0.f;
    }
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < 8; ++i) {
      window[t % 4][i] = now[i];
      v[i] = silu(tap[i][0] * window[(t + 1) % 4][i] + tap[i][1] * window[(t + 2) % 4][i] +
                  tap[i][2] * window[(t + 3) % 4][i] + tap[i][3] * now[i]);
      squares += v[i] * v[i];
    }
    METAL_PRAGMA_UNROLL
    for (int step = 1; step < D / 8; step *= 2) squares += simd_shuffle_xor(squares, ushort(step));
    float scale = 1.f;
    if (channel < key_rows) scale = rsqrt(squares / D + p.eps) / D;
    if (channel >= key_rows && channel < 2 * key_rows) scale = rsqrt(squares / D + p.eps) * rsqrt(float(D));
    vec<uint, 4> words;
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < 4; ++i) words[i] = pair_of(bfloat(v[2 * i] * scale), bfloat(v[2 * i + 1] * scale));
    if (inside) *(device vec<uint, 4>*)(qkv + ulong(row) * channels + channel) = words;
  }
}
ENTRY(conv_rows_128, 128, conv_rows<128, 8>)
ENTRY(conv_rows_64, 128, conv_rows<64, 8>)
