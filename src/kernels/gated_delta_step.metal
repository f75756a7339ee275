// The gated delta rule for one token, all but its norm (project_add_step takes that):
//
//   q, k, v = silu(conv(projected))            depthwise over the last 4 inputs, kept in a ring [4, channels] by
//   position q = q / |q|_rms / DK   k = k / |k|_rms / sqrt(DK)       value head j uses key head j / (value_heads /
//   key_heads) g = exp(-exp(A_log) softplus(a + dt_bias))   beta = sigmoid(b) S = g S;   u = beta (v - S k);   S = S +
//   u k^T;   y = S q        S [DV, DK] in float32, per value head
//
// A simdgroup owns 8 rows of S; a lane DK / 32 columns. S k and S q are made in one pass over the old S:
// y = g (S q) + u (k q). After a stop token the step changes neither S nor the ring.
//
// PREPARED: q, k and v stand in the places of `projected` as delta_prepare_step left them, and the ring is not touched.
#include "conv_step.h"
#include "stream.h"

template <int DK, int DV, int SIMDGROUPS, bool PREPARED>
kernel void gated_delta_step(device const float* projected [[buffer(0)]], device const float* taps [[buffer(1)]],
                             device const float* A_log [[buffer(2)]], device const float* dt_bias [[buffer(3)]],
                             device const StepState* step [[buffer(4)]], device float* ring [[buffer(5)]],
                             device float* state [[buffer(6)]], device float* y [[buffer(7)]],
                             constant GatedDeltaStep& p [[buffer(8)]], uint3 group [[threadgroup_position_in_grid]],
                             uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  constexpr int N = DK / 32;
  const uint head = group.y, ratio = p.value_heads / p.key_heads, key_head = head / ratio;
  const uint first_row = (group.x * SIMDGROUPS + sg) * 8, row = first_row + lane / 2 % 8;
  const uint key_rows = p.key_heads * DK, channels = 2 * key_rows + p.value_heads * DV;
  const uint q_channel = key_head * DK + lane * N, k_channel = q_channel + key_rows;
  const uint v_channel = 2 * key_rows + head * DV + row;

  float s[8][N];
  device float* rows = state + (ulong(head) * DV + first_row) * DK + lane * N;
  METAL_PRAGMA_UNROLL
  for (int r = 0; r < 8; ++r) {
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < N; ++i) s[r][i] = rows[r * DK + i];
  }
  const uint position = step->position;
  const bool stopped = step->stopped != 0;
  const float decay = exp(A_log[head]), bias = dt_bias[head];
  ConvChannel q_conv[N], k_conv[N], v_conv;
  if (!PREPARED) {
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < N; ++i) {
      q_conv[i] = conv_channel(ring, taps, channels, q_channel + i, position);
      k_conv[i] = conv_channel(ring, taps, channels, k_channel + i, position);
    }
    v_conv = conv_channel(ring, taps, channels, v_channel, position);
  }
  let_next_start();
  wait_for_inputs();

  const float b = projected[channels + p.value_heads * DV + head];
  const float a = projected[channels + p.value_heads * (DV + 1) + head];
  float q[N], k[N], q_now[N], k_now[N];
  const float v_now = projected[v_channel];
  METAL_PRAGMA_UNROLL
  for (int i = 0; i < N; ++i) {
    q_now[i] = projected[q_channel + i];
    k_now[i] = projected[k_channel + i];
    q[i] = PREPARED ? q_now[i] : convolve(q_conv[i], q_now[i]);
    k[i] = PREPARED ? k_now[i] : convolve(k_conv[i], k_now[i]);
  }
  const float v = PREPARED ? v_now : convolve(v_conv, v_now);
  device float* slot = ring + position % 4 * channels;
  if (!PREPARED && !stopped && lane % 2 == 0 && lane < 16) slot[v_channel] = v_now;
  if (!PREPARED && !stopped && group.x == 0 && sg == 0 && head % ratio == 0) {
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < N; ++i) {
      slot[q_channel + i] = q_now[i];
      slot[k_channel + i] = k_now[i];
    }
  }

  float qq = 0.f, kk = 0.f, qk = 0.f, dots[16];
  METAL_PRAGMA_UNROLL
  for (int i = 0; i < N; ++i) {
    qq += q[i] * q[i];
    kk += k[i] * k[i];
    qk += q[i] * k[i];
  }
  METAL_PRAGMA_UNROLL
  for (int r = 0; r < 8; ++r) {
    dots[r] = dots[8 + r] = 0.f;
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < N; ++i) {
      dots[r] += s[r][i] * k[i];
      dots[8 + r] += s[r][i] * q[i];
    }
  }
  const float q_scale = PREPARED ? 1.f : rsqrt(simd_sum(qq) / DK + p.eps) / DK;
  const float k_scale = PREPARED ? 1.f : rsqrt(simd_sum(kk) / DK + p.eps) * rsqrt(float(DK));
  qk = simd_sum(qk) * q_scale * k_scale;
  const float dot = simd_sum_of_16(dots, lane);  // lanes 0..15: S k of the lane's row; 16..31: S q
  const float other = simd_shuffle_xor(dot, ushort(16));
  const float g = exp(-decay * softplus(a + bias));
  const float u = sigmoid(b) * (v - g * k_scale * (lane < 16 ? dot : other));
  if (lane % 2 == 0 && lane >= 16) y[head * DV + row] = g * q_scale * dot + u * qk;
  METAL_PRAGMA_UNROLL
  for (int r = 0; r < 8; ++r) {
    const float ur = simd_shuffle(u, ushort(2 * r)) * k_scale;
    if (stopped) continue;
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < N; ++i) rows[r * DK + i] = g * s[r][i] + ur * k[i];
  }
}
ENTRY_PREFETCH(gated_delta_step_128, 128, gated_delta_step<128, 128, 4, false>)
ENTRY_PREFETCH(gated_delta_step_64, 128, gated_delta_step<64, 64, 4, false>)
ENTRY_PREFETCH(prepared_delta_step_128, 128, gated_delta_step<128, 128, 4, true>)
ENTRY_PREFETCH(prepared_delta_step_64, 128, gated_delta_step<64, 64, 4, true>)
