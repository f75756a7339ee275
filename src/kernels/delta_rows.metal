// The delta rule over a chunk, state in registers: a row of S [DK] lives in LANES lanes, a threadgroup takes 32 rows of
// one value head.
//
//   S = g S;   u = beta (v - S k);   S = S + u k^T;   y = S q = g (S_before q) + u (k q)
//
// q, k and v of STEP tokens at a time are made float32 in threadgroup memory, once for all rows.
#include "delta_rows.h"
#include "numeric.h"

template <int DK, int STEP>
struct DeltaRowsMemory {
  float q[STEP][DK], k[STEP][DK];
  float v[STEP][32];
  float g[STEP], beta[STEP], qk[STEP];
};

template <int DK, int DV, int LANES, int STEP>
kernel void delta_rows(device const bfloat* qkv [[buffer(0)]], device const float* gates [[buffer(1)]],
                       device float* state [[buffer(2)]], device bfloat* y [[buffer(3)]],
                       constant DeltaRows& p [[buffer(4)]], uint3 group [[threadgroup_position_in_grid]],
                       uint tid [[thread_index_in_threadgroup]]) {
  static_assert(STEP <= 32, "a row for each token");
  constexpr int N = DK / LANES, THREADS = 32 * LANES, QUADS = N / 4;
  using Memory = DeltaRowsMemory<DK, STEP>;
  SHARED(Memory, mem);
  const uint head = group.y, key_head = head / (p.value_heads / p.key_heads);
  const uint lane = tid % LANES, r = tid / LANES, row = group.x * 32 + r;
  const uint key_rows = p.key_heads * DK, channels = 2 * key_rows + p.value_heads * DV;
  device float* own = state + (ulong(head) * DV + row) * DK;
  // Lane i has columns 4 (i + LANES j) .. + 3, so that neighbours read neighbouring words.
  float s[N];
  METAL_PRAGMA_UNROLL
  for (int j = 0; j < QUADS; ++j) {
    const vec<float, 4> four = ((device const vec<float, 4>*)own)[lane + LANES * j];
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < 4; ++i) s[4 * j + i] = four[i];
  }
  for (uint t0 = 0; t0 < p.rows; t0 += STEP) {
    const uint tokens = min(uint(STEP), p.rows - t0);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = tid; i < tokens * (DK / 8) * 2; i += THREADS) {
      const uint t = i / (DK / 4), part = i / (DK / 8) % 2, column = i % (DK / 8) * 8;
      float v[8];
      read_bf16x8(qkv + ulong(t0 + t) * channels + part * key_rows + key_head * DK + column, v);
      threadgroup float* to = (part == 0 ? mem.q[t] : mem.k[t]) + column;
      METAL_PRAGMA_UNROLL
      for (int j = 0; j < 8; ++j) to[j] = v[j];
    }
    for (uint i = tid; i < tokens * 32; i += THREADS)
      mem.v[i / 32][i % 32] =
          float(qkv[ulong(t0 + i / 32) * channels + 2 * key_rows + head * DV + group.x * 32 + i % 32]);
    if (tid < tokens) {
      mem.g[tid] = gates[(t0 + tid) * 2 * p.value_heads + head];
      mem.beta[tid] = gates[((t0 + tid) * 2 + 1) * p.value_heads + head];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    // k q of each token, by the lanes of one row. All lanes take part: shuffles need them.
    const uint token = min(r, tokens - 1);
    float dot = 0.f;
    METAL_PRAGMA_UNROLL
    for (int j = 0; j < N; ++j) dot += mem.q[token][lane + LANES * j] * mem.k[token][lane + LANES * j];
    METAL_PRAGMA_UNROLL
    for (int step = 1; step < LANES; step *= 2) dot += simd_shuffle_xor(dot, ushort(step));
    if (lane == 0 && r < tokens) mem.qk[r] = dot;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint t = 0; t < tokens; ++t) {
      float k[N], sk[4] = {0.f, 0.f, 0.f, 0.f}, sq[4] = {0.f, 0.f, 0.f, 0.f};
      METAL_PRAGMA_UNROLL
      for (int j = 0; j < QUADS; ++j) {
        const vec<float, 4> k4 = ((threadgroup const vec<float, 4>*)mem.k[t])[lane + LANES * j];
        const vec<float, 4> q4 = ((threadgroup const vec<float, 4>*)mem.q[t])[lane + LANES * j];
        METAL_PRAGMA_UNROLL
        for (int i = 0; i < 4; ++i) {
          k[4 * j + i] = k4[i];
          sk[i] += s[4 * j + i] * k4[i];
          sq[i] += s[4 * j + i] * q4[i];
        }
      }
      float dot_k = (sk[0] + sk[1]) + (sk[2] + sk[3]), dot_q = (sq[0] + sq[1]) + (sq[2] + sq[3]);
      METAL_PRAGMA_UNROLL
      for (int step = 1; step < LANES; step *= 2) {
        dot_k += simd_shuffle_xor(dot_k, ushort(step));
        dot_q += simd_shuffle_xor(dot_q, ushort(step));
      }
      const float g = mem.g[t], u = mem.beta[t] * (mem.v[t][r] - g * dot_k);
      if (lane == 0) y[ulong(t0 + t) * p.value_heads * DV + head * DV + row] = bfloat(g * dot_q + u * mem.qk[t]);
      METAL_PRAGMA_UNROLL
      for (int i = 0; i < N; ++i) s[i] = g * s[i] + u * k[i];
    }
  }
  METAL_PRAGMA_UNROLL
  for (int j = 0; j < QUADS; ++j) {
    vec<float, 4> four;
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < 4; ++i) four[i] = s[4 * j + i];
    ((device vec<float, 4>*)own)[lane + LANES * j] = four;
  }
}
ENTRY(delta_rows_128, 256, delta_rows<128, 128, 8, 16>)
ENTRY(delta_rows_64, 256, delta_rows<64, 64, 8, 16>)
