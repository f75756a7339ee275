// The delta rule over chunks of 64 tokens, on the tensor cores (the scan of delta_rows.metal takes one token at a
// time).
//
// With G_t the product of the decays g from the chunk's beginning to t, S the state before the chunk, and rows for
// tokens:
//   U = T diag(beta) (V - diag(G) K S^T)        T = (I + L)^-1, L[t][i] = beta_t G_t / G_i (k_t k_i) for i < t
//   Y = diag(G) Q S^T + P U                     P[t][i] = G_t / G_i (q_t k_i) for i <= t
//   S = G_last S + (diag(G_last / G) U)^T K
//
// delta_prepare makes T diag(beta), P and log G of every chunk and head, all chunks at once. delta_chunks then goes
// from chunk to chunk with 32 rows of S in registers; as an operand S is split into two bf16 parts, high + low. Rows in
// threadgroup memory: chunk c (8 values) of row r stands at place c ^ (r % 8).
#include "../delta_rows.h"
#include "../mma.h"
#include "../numeric.h"

constant constexpr uint kChunk = 64;
constant constexpr uint kDelta = 128;  // the heads' size

// Of one chunk and head: T diag(beta), then P.
struct DeltaFactors {
  bfloat t[kChunk * kChunk];
  bfloat p[kChunk * kChunk];
};
struct DeltaDecays {
  float log_g[kChunk];  // log G
};

template <int WIDTH>
METAL_FUNC uint row_place(uint row, uint chunk) {
  return row * WIDTH + (chunk ^ (row % 8)) * 8;
}

// Rows [first, first + 64) of WIDTH values, zeros from `rows` on.
template <int WIDTH, int THREADS>
METAL_FUNC void start_chunk_rows(device const bfloat* from, ulong stride, uint first, uint rows, threadgroup bfloat* to,
                                 uint tid) {
  METAL_PRAGMA_UNROLL
  for (uint i = tid; i < kChunk * WIDTH / 8; i += THREADS) {
    const uint row = i / (WIDTH / 8), chunk = i % (WIDTH / 8);
    const bool valid = first + row < rows;
    start_copy(to + row_place<WIDTH>(row, chunk), from + ulong(valid ? first + row : 0u) * stride + chunk * 8, valid);
  }
}

struct DeltaPrepareMemory {
  bfloat q[kChunk * kDelta], k[kChunk * kDelta];
  float l[kChunk][kChunk + 4];
  float log_g[kChunk], beta[kChunk];
};

template <int THREADS>
kernel void delta_prepare(device const bfloat* qkv [[buffer(0)]], device const float* gates [[buffer(1)]],
                          device DeltaFactors* factors [[buffer(2)]], device DeltaDecays* decays [[buffer(3)]],
                          constant DeltaRows& p [[buffer(4)]], uint3 group [[threadgroup_position_in_grid]],
                          uint tid [[thread_index_in_threadgroup]], uint sg [[simdgroup_index_in_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]]) {
  static_assert(THREADS == 128, "a simdgroup for 16 rows");
  LARGE_SHARED(DeltaPrepareMemory, mem);
  const uint head = group.y, first = group.x * kChunk, key_head = head / (p.value_heads / p.key_heads);
  const uint key_rows = p.key_heads * kDelta, channels = 2 * key_rows + p.value_heads * kDelta;
  device DeltaFactors& own = factors[group.x * p.value_heads + head];
  start_chunk_rows<kDelta, THREADS>(qkv + key_head * kDelta, channels, first, p.rows, mem.q, tid);
  start_chunk_rows<kDelta, THREADS>(qkv + key_rows + key_head * kDelta, channels, first, p.rows, mem.k, tid);
  end_copy_group();
  if (sg == 0) {  // two tokens a lane
    float log_g[2], beta[2];
    METAL_PRAGMA_UNROLL
    for (uint i = 0; i < 2; ++i) {
      const uint row = first + 2 * lane + i;
      log_g[i] = row < p.rows ? gates[row * 2 * p.value_heads + head] : 0.f;
      beta[i] = row < p.rows ? gates[(row * 2 + 1) * p.value_heads + head] : 0.f;
    }
    const float both = log_g[0] + log_g[1], until = simd_prefix_inclusive_sum(both);
    mem.log_g[2 * lane] = until - log_g[1];
    mem.log_g[2 * lane + 1] = until;
    mem.beta[2 * lane] = beta[0];
    mem.beta[2 * lane + 1] = beta[1];
  }
  finish_copies<0>();
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (tid < kChunk) decays[group.x * p.value_heads + head].log_g[tid] = mem.log_g[tid];

  float kk[8][4], qk[8][4];
  METAL_PRAGMA_UNROLL
  for (int n = 0; n < 8; ++n) METAL_PRAGMA_UNROLL
  for (int i = 0; i < 4; ++i) kk[n][i] = qk[n][i] = 0.f;
  METAL_PRAGMA_UNROLL
  for (uint s = 0; s < kDelta / 16; ++s) {
    uint fk[4], fq[4];
    load_matrices<false>(fk, mem.k + row_place<kDelta>(sg * 16 + lane % 16, 2 * s + lane / 16));
    load_matrices<false>(fq, mem.q + row_place<kDelta>(sg * 16 + lane % 16, 2 * s + lane / 16));
    METAL_PRAGMA_UNROLL
    for (uint n = 0; n < 4; ++n) {
      uint b[4];
      load_matrices<false>(b, mem.k + row_place<kDelta>(n * 16 + lane / 16 * 8 + lane % 8, 2 * s + lane / 8 % 2));
      mma_16x8x16(kk[2 * n], fk[0], fk[1], fk[2], fk[3], b[0], b[1]);
      mma_16x8x16(kk[2 * n + 1], fk[0], fk[1], fk[2], fk[3], b[2], b[3]);
      mma_16x8x16(qk[2 * n], fq[0], fq[1], fq[2], fq[3], b[0], b[1]);
      mma_16x8x16(qk[2 * n + 1], fq[0], fq[1], fq[2], fq[3], b[2], b[3]);
    }
  }
  METAL_PRAGMA_UNROLL
  for (uint n = 0; n < 8; ++n) {
    METAL_PRAGMA_UNROLL
    for (uint h = 0; h < 2; ++h) {
      const uint t = sg * 16 + lane / 4 + 8 * h, i = n * 8 + lane % 4 * 2;
      float weight[2], product[2];
      METAL_PRAGMA_UNROLL
      for (uint j = 0; j < 2; ++j) {
        const float ratio = i + j <= t ? exp(mem.log_g[t] - mem.log_g[i + j]) : 0.f;
        weight[j] = ratio * qk[n][2 * h + j];
        product[j] = i + j < t ? mem.beta[t] * ratio * kk[n][2 * h + j] : 0.f;
        mem.l[t][i + j] = product[j];
      }
      *(device uint*)(own.p + t * kChunk + i) = pair_of(bfloat(weight[0]), bfloat(weight[1]));
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);

  // Column j of the inverse by threads 2 j and 2 j + 1, in the memory that held q and k (rows of 65).
  threadgroup float* x = (threadgroup float*)mem.q;
  const uint column_of_x = tid / 2, part = tid % 2 * 4, from = sg * 16;  // what is above a column's own row is zero
  for (uint t = tid % 2; t < from; t += 2) x[t * 65 + column_of_x] = 0.f;
  for (uint t = from; t < kChunk; ++t) {
    float sum[4] = {0.f, 0.f, 0.f, 0.f};
    for (uint i = from + part; i < t; i += 8) {
      const vec<float, 4> l = *(threadgroup const vec<float, 4>*)&mem.l[t][i];  // zeros from t on
      METAL_PRAGMA_UNROLL
      for (uint j = 0; j < 4; ++j) sum[j] -= l[j] * (i + j < t ? x[(i + j) * 65 + column_of_x] : 0.f);
    }
    float all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    simdgroup_barrier(mem_flags::mem_none);  // both may have left the loop at different times
    all += simd_shuffle_xor(all, ushort(1));
    if (tid % 2 == 0) x[t * 65 + column_of_x] = all + (t == column_of_x ? 1.f : 0.f);
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = tid; i < kChunk * kChunk / 2; i += THREADS) {
    const uint t = i / (kChunk / 2), column = i % (kChunk / 2) * 2;
    *(device uint*)(own.t + t * kChunk + column) =
        pair_of(bfloat(x[t * 65 + column] * mem.beta[column]), bfloat(x[t * 65 + column + 1] * mem.beta[column + 1]));
  }
}
ENTRY_LARGE(delta_prepare_mma_128, 128, 3, DeltaPrepareMemory, delta_prepare<128>)

constant constexpr uint kThin = 40;  // values of a row of 32, with room so that matrix loads do not meet in a bank

struct DeltaChunkMemory {
  bfloat q[2][kChunk * kDelta], k[2][kChunk * kDelta];
  bfloat t[2][kChunk * kChunk], p[2][kChunk * kChunk];
  bfloat v[2][kChunk * 32];
  float log_g[2][kChunk];
  bfloat s[2][32 * kDelta];  // high, low
  bfloat w[kChunk * kThin], u[kChunk * kThin], decayed[kChunk * kThin];
};

METAL_FUNC void start_delta_chunk(device const bfloat* q, device const bfloat* k, device const bfloat* v,
                                  ulong channels, device const DeltaFactors& f, device const DeltaDecays& d, uint first,
                                  uint rows, threadgroup DeltaChunkMemory& mem, uint at, uint tid) {
  start_chunk_rows<kDelta, 256>(q, channels, first, rows, mem.q[at], tid);
  start_chunk_rows<kDelta, 256>(k, channels, first, rows, mem.k[at], tid);
  start_chunk_rows<kChunk, 256>(f.t, kChunk, 0, kChunk, mem.t[at], tid);
  start_chunk_rows<kChunk, 256>(f.p, kChunk, 0, kChunk, mem.p[at], tid);
  const uint row = tid / 4, part = tid % 4 * 8;
  const bool valid = first + row < rows;
  start_copy(mem.v[at] + row * 32 + part, v + ulong(valid ? first + row : 0u) * channels + part, valid);
  if (tid < kChunk / 4) start_copy<16>(&mem.log_g[at][tid * 4], &d.log_g[tid * 4]);
  end_copy_group();
}

template <int THREADS>
kernel void delta_chunks(device const bfloat* qkv [[buffer(0)]], device const DeltaFactors* factors [[buffer(1)]],
                         device const DeltaDecays* decays [[buffer(2)]], device float* state [[buffer(3)]],
                         device bfloat* y [[buffer(4)]], constant DeltaRows& p [[buffer(5)]],
                         uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                         uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  static_assert(THREADS == 256, "eight simdgroups");
  LARGE_SHARED(DeltaChunkMemory, mem);
  const uint head = group.y, key_head = head / (p.value_heads / p.key_heads), first_v = group.x * 32;
  const uint key_rows = p.key_heads * kDelta, channels = 2 * key_rows + p.value_heads * kDelta;
  device const bfloat* q = qkv + key_head * kDelta;
  device const bfloat* v = qkv + 2 * key_rows + head * kDelta + first_v;
  const uint chunks = (p.rows + kChunk - 1) / kChunk, m = sg % 4, g = lane / 4, pair = lane % 4 * 2;
  const bool on_keys = sg < 4;

  // A simdgroup has columns [16 sg, 16 sg + 16) of the 32 rows of S.
  float s[2][2][4];
  device float* own = state + (ulong(head) * kDelta + first_v) * kDelta + sg * 16;
  METAL_PRAGMA_UNROLL
  for (uint a = 0; a < 2; ++a) METAL_PRAGMA_UNROLL
  for (uint b = 0; b < 2; ++b) METAL_PRAGMA_UNROLL
  for (uint i = 0; i < 4; ++i) s[a][b][i] = own[(a * 16 + g + i / 2 * 8) * kDelta + b * 8 + pair + i % 2];

  start_delta_chunk(q, q + key_rows, v, channels, factors[head], decays[head], 0, p.rows, mem, 0, tid);
  for (uint c = 0; c < chunks; ++c) {
    const uint at = c % 2, next = c + 1;
    METAL_PRAGMA_UNROLL
    for (uint a = 0; a < 2; ++a) METAL_PRAGMA_UNROLL
    for (uint b = 0; b < 2; ++b) METAL_PRAGMA_UNROLL
    for (uint h = 0; h < 2; ++h) {
      const uint place = row_place<kDelta>(a * 16 + g + 8 * h, 2 * sg + b) + pair;
      const bfloat high0 = bfloat(s[a][b][2 * h]), high1 = bfloat(s[a][b][2 * h + 1]);
      *(threadgroup uint*)(mem.s[0] + place) = pair_of(high0, high1);
      *(threadgroup uint*)(mem.s[1] + place) =
          pair_of(bfloat(s[a][b][2 * h] - float(high0)), bfloat(s[a][b][2 * h + 1] - float(high1)));
    }
    finish_copies<0>();
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (next < chunks)
      start_delta_chunk(q, q + key_rows, v, channels, factors[next * p.value_heads + head],
                        decays[next * p.value_heads + head], next * kChunk, p.rows, mem, next % 2, tid);

    // K S^T by the first four simdgroups, Q S^T by the others: 16 tokens by 32 rows of S each.
    float r[4][4];
    METAL_PRAGMA_UNROLL
    for (int n = 0; n < 4; ++n) r[n][0] = r[n][1] = r[n][2] = r[n][3] = 0.f;
    threadgroup const bfloat* left = on_keys ? mem.k[at] : mem.q[at];
    METAL_PRAGMA_UNROLL
    for (uint k = 0; k < kDelta / 16; ++k) {
      uint a[4];
      load_matrices<false>(a, left + row_place<kDelta>(m * 16 + lane % 16, 2 * k + lane / 16));
      METAL_PRAGMA_UNROLL
      for (uint part = 0; part < 2; ++part) {
        METAL_PRAGMA_UNROLL
        for (uint n = 0; n < 2; ++n) {
          uint b[4];
          load_matrices<false>(
              b, mem.s[part] + row_place<kDelta>(n * 16 + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
          mma_16x8x16(r[2 * n], a[0], a[1], a[2], a[3], b[0], b[1]);
          mma_16x8x16(r[2 * n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
        }
      }
    }
    float decay[2];
    METAL_PRAGMA_UNROLL
    for (uint h = 0; h < 2; ++h) decay[h] = exp(mem.log_g[at][m * 16 + g + 8 * h]);
    METAL_PRAGMA_UNROLL
    for (uint n = 0; n < 4; ++n) METAL_PRAGMA_UNROLL
    for (uint h = 0; h < 2; ++h) {
      const uint t = m * 16 + g + 8 * h, column = n * 8 + pair;
      if (on_keys) {
        const uint values = *(threadgroup const uint*)(mem.v[at] + t * 32 + column);
        *(threadgroup uint*)(mem.w + t * kThin + column) = pair_of(
            bfloat(low_half(values) - decay[h] * r[n][2 * h]), bfloat(high_half(values) - decay[h] * r[n][2 * h + 1]));
      } else {
        r[n][2 * h] *= decay[h];
        r[n][2 * h + 1] *= decay[h];
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    // U = T diag(beta) W: 16 tokens by 16 columns each.
    float u[2][4];
    METAL_PRAGMA_UNROLL
    for (int n = 0; n < 2; ++n) u[n][0] = u[n][1] = u[n][2] = u[n][3] = 0.f;
    const uint half_column = sg / 4 * 16;
    METAL_PRAGMA_UNROLL
    for (uint k = 0; k < kChunk / 16; ++k) {
      uint a[4], b[4];
      load_matrices<false>(a, mem.t[at] + row_place<kChunk>(m * 16 + lane % 16, 2 * k + lane / 16));
      load_matrices<true>(b, mem.w + (k * 16 + lane % 16) * kThin + half_column + lane / 16 * 8);
      mma_16x8x16(u[0], a[0], a[1], a[2], a[3], b[0], b[1]);
      mma_16x8x16(u[1], a[0], a[1], a[2], a[3], b[2], b[3]);
    }
    const float last = mem.log_g[at][kChunk - 1];
    METAL_PRAGMA_UNROLL
    for (uint n = 0; n < 2; ++n) METAL_PRAGMA_UNROLL
    for (uint h = 0; h < 2; ++h) {
      const uint t = m * 16 + g + 8 * h, place = t * kThin + half_column + n * 8 + pair;
      const float until_end = exp(last - mem.log_g[at][t]);
      *(threadgroup uint*)(mem.u + place) = pair_of(bfloat(u[n][2 * h]), bfloat(u[n][2 * h + 1]));
      *(threadgroup uint*)(mem.decayed + place) =
          pair_of(bfloat(until_end * u[n][2 * h]), bfloat(until_end * u[n][2 * h + 1]));
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);

    if (!on_keys) {
      METAL_PRAGMA_UNROLL
      for (uint k = 0; k < kChunk / 16; ++k) {
        uint a[4];
        load_matrices<false>(a, mem.p[at] + row_place<kChunk>(m * 16 + lane % 16, 2 * k + lane / 16));
        METAL_PRAGMA_UNROLL
        for (uint n = 0; n < 2; ++n) {
          uint b[4];
          load_matrices<true>(b, mem.u + (k * 16 + lane % 16) * kThin + n * 16 + lane / 16 * 8);
          mma_16x8x16(r[2 * n], a[0], a[1], a[2], a[3], b[0], b[1]);
          mma_16x8x16(r[2 * n + 1], a[0], a[1], a[2], a[3], b[2], b[3]);
        }
      }
      METAL_PRAGMA_UNROLL
      for (uint n = 0; n < 4; ++n) METAL_PRAGMA_UNROLL
      for (uint h = 0; h < 2; ++h) {
        const uint row = c * kChunk + m * 16 + g + 8 * h;
        if (row < p.rows)
          *(device uint*)(y + (ulong(row) * p.value_heads + head) * kDelta + first_v + n * 8 + pair) =
              pair_of(bfloat(r[n][2 * h]), bfloat(r[n][2 * h + 1]));
      }
    }
    const float all = exp(last);
    METAL_PRAGMA_UNROLL
    for (int a = 0; a < 2; ++a) METAL_PRAGMA_UNROLL
    for (int b = 0; b < 2; ++b) METAL_PRAGMA_UNROLL
    for (int i = 0; i < 4; ++i) s[a][b][i] *= all;
    METAL_PRAGMA_UNROLL
    for (uint k = 0; k < kChunk / 16; ++k) {
      uint b[4];
      load_matrices<true>(b, mem.k[at] + row_place<kDelta>(k * 16 + lane % 16, 2 * sg + lane / 16));
      METAL_PRAGMA_UNROLL
      for (uint i = 0; i < 2; ++i) {
        uint a[4];
        load_matrices<true>(a, mem.decayed + (k * 16 + lane / 16 * 8 + lane % 8) * kThin + i * 16 + lane / 8 % 2 * 8);
        mma_16x8x16(s[i][0], a[0], a[1], a[2], a[3], b[0], b[1]);
        mma_16x8x16(s[i][1], a[0], a[1], a[2], a[3], b[2], b[3]);
      }
    }
  }
  METAL_PRAGMA_UNROLL
  for (uint a = 0; a < 2; ++a) METAL_PRAGMA_UNROLL
  for (uint b = 0; b < 2; ++b) METAL_PRAGMA_UNROLL
  for (uint i = 0; i < 4; ++i) own[(a * 16 + g + i / 2 * 8) * kDelta + b * 8 + pair + i % 2] = s[a][b][i];
}
ENTRY_LARGE(delta_chunks_mma_128, 256, 1, DeltaChunkMemory, delta_chunks<256>)
