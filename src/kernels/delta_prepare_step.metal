// What gated_delta_step otherwise does itself for every 8 rows of the state, as a launch of its own, before the
// recurrence; and what project_add_step does, after it:
//
//   delta_prepare_step   q, k, v = silu(conv(projected)), q and k with their norms and scales; the ring moves on.
//                        `out` has the places of `projected`; b and a are copied, z left out
//   gated_norm_step      out = rms_norm(y, norm) * silu(z) per value head
//
// A simdgroup takes one head: the query heads, then the key heads, then the value heads.
#include "conv_step.h"

template <int D>
kernel void delta_prepare_step(device const float* projected [[buffer(0)]], device const float* taps [[buffer(1)]],
                               device const StepState* step [[buffer(2)]], device float* ring [[buffer(3)]],
                               device float* out [[buffer(4)]], constant GatedDeltaStep& p [[buffer(5)]],
                               uint3 group [[threadgroup_position_in_grid]], uint sg [[simdgroup_index_in_threadgroup]],
                               uint lane [[thread_index_in_simdgroup]]) {
  constexpr int N = D / 32;
  const uint head = group.x * 4 + sg, heads = 2 * p.key_heads + p.value_heads, channels = heads * D;
  if (head >= heads) return;
  const uint first = head * D + lane * N, position = step->position;
  float v[N], squares = 0.f;
  METAL_PRAGMA_UNROLL
  for (int i = 0; i < N; ++i) {
    const float now = projected[first + i];
    v[i] = convolve(conv_channel(ring, taps, channels, first + i, position), now);
    squares += v[i] * v[i];
    if (step->stopped == 0) ring[position % 4 * channels + first + i] = now;
  }
  const float norm = rsqrt(simd_sum(squares) / D + p.eps);
  const float scale = head < p.key_heads ? norm / D : head < 2 * p.key_heads ? norm * rsqrt(float(D)) : 1.f;
  METAL_PRAGMA_UNROLL
  for (int i = 0; i < N; ++i) out[first + i] = v[i] * scale;
  if (head >= 2 * p.key_heads && lane < 2) {
    const uint gate = channels + p.value_heads * (D + lane) + head - 2 * p.key_heads;
    out[gate] = projected[gate];
  }
}
ENTRY(delta_prepare_step_128, 128, delta_prepare_step<128>)
ENTRY(delta_prepare_step_64, 128, delta_prepare_step<64>)

template <int D>
kernel void gated_norm_step(device const float* y [[buffer(0)]], device const float* z [[buffer(1)]],
                            device const float* norm [[buffer(2)]], device float* out [[buffer(3)]],
                            constant GatedDeltaStep& p [[buffer(4)]], uint3 group [[threadgroup_position_in_grid]],
                            uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  constexpr int N = D / 32;
  const uint head = group.x * 4 + sg, first = head * D + lane * N;
  if (head >= p.value_heads) return;
  float v[N], squares = 0.f;
  METAL_PRAGMA_UNROLL
  for (int i = 0; i < N; ++i) {
    v[i] = y[first + i];
    squares += v[i] * v[i];
  }
  const float scale = rsqrt(simd_sum(squares) / D + p.eps);
  METAL_PRAGMA_UNROLL
  for (int i = 0; i < N; ++i) out[first + i] = v[i] * scale * norm[lane * N + i] * silu(z[first + i]);
}
ENTRY(gated_norm_step_128, 128, gated_norm_step<128>)
ENTRY(gated_norm_step_64, 128, gated_norm_step<64>)
