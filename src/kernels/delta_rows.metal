// The delta rule over a chunk, state in registers: a row of S [DK] lives in LANES lanes, a threadgroup takes 32 rows of
// one value head.
//
//   S = g S;   u = beta (v - S k);   S = S + u k^T;   y = S q = g (S_before q) + u (k q)
//
// q, k and v of STEP tokens at a time are made float32 in threadgroup memory, once for all rows.
//
// RESIDENT: S stays in registers for the whole chunk. Else it goes back to memory after each STEP tokens.
#include "delta_rows.h"
#include "numeric.h"

template <int DK, int STEP>
struct DeltaRowsMemory {
  float q[STEP][DK], k[STEP][DK];
  float v[STEP][32];
  float log_g[STEP], beta[STEP], qk[STEP];
};

// What a thread brings of STEP tokens, asked for while the tokens before them are computed. Past the last row the row
// itself is read again.
template <int DK, int STEP, int THREADS>
struct DeltaRowsInput {
  static constant constexpr int kWords = STEP * DK / 4 / THREADS, kValues = STEP * 32 / THREADS;
  static_assert(kWords > 0 && kValues > 0 && STEP <= THREADS, "each thread has a part");
  vec<uint, 4> qk[kWords];
  bfloat v[kValues];
  float log_g, beta;

  METAL_FUNC void load(device const bfloat* qkv, device const float* gates, constant DeltaRows& p, uint head,
                       uint group, uint channels, uint key_rows, uint t0, uint tid) {
    const uint last = p.rows - 1, key_head = head / (p.value_heads / p.key_heads);
    METAL_PRAGMA_UNROLL
    for (uint i = 0; i < kWords; ++i) {
      const uint word = tid + i * THREADS, t = min(t0 + word / (DK / 4), last), part = word / (DK / 8) % 2;
      qk[i] = *(device const vec<uint, 4>*)(qkv + ulong(t) * channels + part * key_rows + key_head * DK +
                                            word % (DK / 8) * 8);
    }
    METAL_PRAGMA_UNROLL
    for (uint i = 0; i < kValues; ++i) {
      const uint value = tid + i * THREADS, t = min(t0 + value / 32, last);
      v[i] = qkv[ulong(t) * channels + 2 * key_rows + head * DK + group * 32 + value % 32];
    }
    const uint t = min(t0 + tid % STEP, last);
    log_g = gates[t * 2 * p.value_heads + head];
    beta = gates[(t * 2 + 1) * p.value_heads + head];
  }
  METAL_FUNC void put(threadgroup DeltaRowsMemory<DK, STEP>& mem, uint tid) {
    METAL_PRAGMA_UNROLL
    for (uint i = 0; i < kWords; ++i) {
      const uint word = tid + i * THREADS, t = word / (DK / 4), column = word % (DK / 8) * 8;
      threadgroup float* to = (word / (DK / 8) % 2 == 0 ? mem.q[t] : mem.k[t]) + column;
      METAL_PRAGMA_UNROLL
      for (int j = 0; j < 4; ++j) {
        to[2 * j] = low_half(qk[i][j]);
        to[2 * j + 1] = high_half(qk[i][j]);
      }
    }
    METAL_PRAGMA_UNROLL
    for (uint i = 0; i < kValues; ++i) {
      const uint value = tid + i * THREADS;
      mem.v[value / 32][value % 32] = float(v[i]);
    }
    if (tid < STEP) {
      mem.log_g[tid] = log_g;
      mem.beta[tid] = beta;
    }
  }
};

// Lane i has columns 4 (i + LANES j) .. + 3, so that neighbours read neighbouring words.
template <int QUADS, int LANES>
METAL_FUNC void load_state(device const float* own, thread float* s, uint lane) {
  METAL_PRAGMA_UNROLL
  for (int j = 0; j < QUADS; ++j) {
    const vec<float, 4> four = ((device const vec<float, 4>*)own)[lane + LANES * j];
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < 4; ++i) s[4 * j + i] = four[i];
  }
}
template <int QUADS, int LANES>
METAL_FUNC void store_state(device float* own, thread const float* s, uint lane) {
  METAL_PRAGMA_UNROLL
  for (int j = 0; j < QUADS; ++j) {
    vec<float, 4> four;
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < 4; ++i) four[i] = s[4 * j + i];
    ((device vec<float, 4>*)own)[lane + LANES * j] = four;
  }
}

template <int DK, int DV, int LANES, int STEP, bool RESIDENT>
kernel void delta_rows(device const bfloat* qkv [[buffer(0)]], device const float* gates [[buffer(1)]],
                       device float* state [[buffer(2)]], device bfloat* y [[buffer(3)]],
                       constant DeltaRows& p [[buffer(4)]], uint3 group [[threadgroup_position_in_grid]],
                       uint tid [[thread_index_in_threadgroup]]) {
  static_assert(STEP <= 32 && DK == DV, "a row for each token");
  constexpr int N = DK / LANES, THREADS = 32 * LANES, QUADS = N / 4;
  using Memory = DeltaRowsMemory<DK, STEP>;
  SHARED(Memory, mem);
  const uint head = group.y;
  const uint lane = tid % LANES, r = tid / LANES, row = group.x * 32 + r;
  const uint key_rows = p.key_heads * DK, channels = 2 * key_rows + p.value_heads * DV;
  device float* own = state + (ulong(head) * DV + row) * DK;
  float s[N];
  load_state<QUADS, LANES>(own, s, lane);
  DeltaRowsInput<DK, STEP, THREADS> input;
  input.load(qkv, gates, p, head, group.x, channels, key_rows, 0, tid);
  for (uint t0 = 0; t0 < p.rows; t0 += STEP) {
    const uint tokens = min(uint(STEP), p.rows - t0);
    if (!RESIDENT && t0 > 0) load_state<QUADS, LANES>(own, s, lane);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    input.put(mem, tid);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t0 + STEP < p.rows) input.load(qkv, gates, p, head, group.x, channels, key_rows, t0 + STEP, tid);
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
      const float g = exp(mem.log_g[t]), u = mem.beta[t] * (mem.v[t][r] - g * dot_k);
      if (lane == 0) y[ulong(t0 + t) * p.value_heads * DV + head * DV + row] = bfloat(g * dot_q + u * mem.qk[t]);
      METAL_PRAGMA_UNROLL
      for (int i = 0; i < N; ++i) s[i] = g * s[i] + u * k[i];
    }
    if (!RESIDENT) store_state<QUADS, LANES>(own, s, lane);
  }
  if (RESIDENT) store_state<QUADS, LANES>(own, s, lane);
}
ENTRY(delta_rows_128, 256, delta_rows<128, 128, 8, 16, true>)
ENTRY(delta_rows_64, 256, delta_rows<64, 64, 8, 16, true>)
ENTRY(block_delta_rows_128, 256, delta_rows<128, 128, 8, 16, false>)
ENTRY(block_delta_rows_64, 256, delta_rows<64, 64, 8, 16, false>)
