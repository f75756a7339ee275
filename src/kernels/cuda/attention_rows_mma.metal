// attention_rows on the tensor cores: a threadgroup takes 128 packed rows (some tokens with query heads of one
// key/value head), a simdgroup 16 of them; keys come 64 at a time. Scores, weights and sums stay in registers: the
// scores of a lane are, as they stand, its part of the left operand of the product with the values.
//
// Keys are copied while the product with the values runs, values while the scores are made. Chunk c (8 values) of row r
// stands at place c ^ (r % 8).
#include "../attention_rows.h"
#include "../mma.h"
#include "../operand.h"

template <int D>
struct AttentionRowsMmaMemory {
  bfloat q[128 * D];
  bfloat keys[64 * D];
  bfloat values[64 * D];
};

template <int D>
METAL_FUNC uint place_in_row(uint row, uint chunk) {
  return row * D + (chunk ^ (row % 8)) * 8;
}

template <int D>
METAL_FUNC void start_cache_rows(device const bfloat* from, uint token_stride, uint chunk_stride, uint first, uint last,
                                 threadgroup bfloat* to, uint tid) {
  METAL_PRAGMA_UNROLL
  for (uint i = 0; i < 64 * (D / 8) / 256; ++i) {
    const uint row = tid / (D / 8) + i * (256 / (D / 8)), chunk = tid % (D / 8);
    start_copy(to + place_in_row<D>(row, chunk), from + ulong(min(first + row, last)) * token_stride + ulong(chunk) * chunk_stride, true);
  }
  end_copy_group();
}

template <int D>
kernel void attention_rows_mma(device const bfloat* q [[buffer(0)]], device const bfloat* keys [[buffer(1)]],
                               device const bfloat* values [[buffer(2)]], device const bfloat* projected [[buffer(3)]],
                               device bfloat* out [[buffer(4)]], constant AttentionRows& p [[buffer(5)]],
                               uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                               uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  constexpr uint CHUNKS = D / 8;
  using Memory = AttentionRowsMmaMemory<D>;
  LARGE_SHARED(Memory, mem);
  const uint packed = p.packed, tokens = 128 / packed, first_head = group.y * packed;
  const uint kv_head = first_head / (p.heads / p.kv_heads), stride = p.cache.token, chunk_stride = p.cache.chunk;
  const uint first_token = ((p.rows + tokens - 1) / tokens - 1 - group.x) * tokens;  // the longest first
  const uint last_key = p.position + min(first_token + tokens, p.rows) - 1, first_newest = p.position + first_token;
  device const bfloat* head_keys = keys + ulong(kv_head) * p.cache.head;
  device const bfloat* head_values = values + ulong(kv_head) * p.cache.head;
  METAL_PRAGMA_UNROLL
  for (uint i = 0; i < 128 * CHUNKS / 256; ++i) {
    const uint r = tid / CHUNKS + i * (256 / CHUNKS), chunk = tid % CHUNKS,
               token = min(first_token + r / packed, p.rows - 1);
    start_copy(mem.q + place_in_row<D>(r, chunk), q + (ulong(token) * p.heads + first_head + r % packed) * D + chunk * 8,
               true);
  }
  start_cache_rows<D>(head_keys, stride, chunk_stride, 0, last_key, mem.keys, tid);

  const uint row = sg * 16 + lane / 4;  // and row + 8
  uint newest[2];
  newest[0] = first_newest + row / packed;
  newest[1] = first_newest + (row + 8) / packed;
  float acc[CHUNKS][4], top[2] = {-1e30f, -1e30f}, total[2] = {0.f, 0.f};
  METAL_PRAGMA_UNROLL
  for (uint n = 0; n < CHUNKS; ++n) acc[n][0] = acc[n][1] = acc[n][2] = acc[n][3] = 0.f;

  for (uint t = 0; t <= last_key; t += 64) {
    finish_copies<0>();
    threadgroup_barrier(mem_flags::mem_threadgroup);
    start_cache_rows<D>(head_values, stride, chunk_stride, t, last_key, mem.values, tid);
    float s[8][4];
    METAL_PRAGMA_UNROLL
    for (int n = 0; n < 8; ++n) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.f;
    METAL_PRAGMA_UNROLL
    for (uint k = 0; k < D / 16; ++k) {
      uint fq[4];
      load_matrices<false>(fq, mem.q + place_in_row<D>(sg * 16 + lane % 16, 2 * k + lane / 16));
      METAL_PRAGMA_UNROLL
      for (uint n = 0; n < 4; ++n) {
        uint fk[4];
        load_matrices<false>(fk, mem.keys + place_in_row<D>(n * 16 + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
        mma_16x8x16(s[2 * n], fq[0], fq[1], fq[2], fq[3], fk[0], fk[1]);
        mma_16x8x16(s[2 * n + 1], fq[0], fq[1], fq[2], fq[3], fk[2], fk[3]);
      }
    }
    float rescale[2];
    METAL_PRAGMA_UNROLL
    for (int h = 0; h < 2; ++h) {
      float best = top[h];
      METAL_PRAGMA_UNROLL
      for (uint n = 0; n < 8; ++n) {
        METAL_PRAGMA_UNROLL
        for (uint j = 0; j < 2; ++j) {
          float score = s[n][2 * h + j];
          if (t + n * 8 + lane % 4 * 2 + j > newest[h]) score = -1e30f;
          s[n][2 * h + j] = score;
          best = max(best, score);
        }
      }
      best = max(best, simd_shuffle_xor(best, ushort(1)));
      best = max(best, simd_shuffle_xor(best, ushort(2)));
      rescale[h] = exp2(top[h] - best);
      top[h] = best;
      float sum = 0.f;
      METAL_PRAGMA_UNROLL
      for (int n = 0; n < 8; ++n) {
        METAL_PRAGMA_UNROLL
        for (int j = 0; j < 2; ++j) {
          s[n][2 * h + j] = exp2(s[n][2 * h + j] - best);
          sum += s[n][2 * h + j];
        }
      }
      total[h] = total[h] * rescale[h] + sum;  // of the lane's own columns; the lanes of a row meet at the end
    }
    METAL_PRAGMA_UNROLL
    for (uint n = 0; n < CHUNKS; ++n) {
      acc[n][0] *= rescale[0];
      acc[n][1] *= rescale[0];
      acc[n][2] *= rescale[1];
      acc[n][3] *= rescale[1];
    }
    finish_copies<0>();
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t + 64 <= last_key) start_cache_rows<D>(head_keys, stride, chunk_stride, t + 64, last_key, mem.keys, tid);
    METAL_PRAGMA_UNROLL
    for (uint k = 0; k < 4; ++k) {
      uint w[4];
      METAL_PRAGMA_UNROLL
      for (int i = 0; i < 4; ++i)
        w[i] = pair_of(bfloat(s[2 * k + i / 2][i % 2 * 2]), bfloat(s[2 * k + i / 2][i % 2 * 2 + 1]));
      METAL_PRAGMA_UNROLL
      for (uint n = 0; n < CHUNKS / 2; ++n) {
        uint fv[4];
        load_matrices<true>(fv, mem.values + place_in_row<D>(k * 16 + lane % 16, 2 * n + lane / 16));
        mma_16x8x16(acc[2 * n], w[0], w[1], w[2], w[3], fv[0], fv[1]);
        mma_16x8x16(acc[2 * n + 1], w[0], w[1], w[2], w[3], fv[2], fv[3]);
      }
    }
  }

  // Through the queries' memory, each simdgroup its own rows, so that rows leave whole and in operand order.
  METAL_PRAGMA_UNROLL
  for (int h = 0; h < 2; ++h) {
    total[h] += simd_shuffle_xor(total[h], ushort(1));
    total[h] += simd_shuffle_xor(total[h], ushort(2));
    const uint r = row + 8 * h, token = min(first_token + r / packed, p.rows - 1);
    device const bfloat* gate = projected + ulong(token) * p.stride + (first_head + r % packed) * 2 * D + D;
    METAL_PRAGMA_UNROLL
    for (uint n = 0; n < CHUNKS; ++n) {
      METAL_PRAGMA_UNROLL
      for (uint j = 0; j < 2; ++j) {
        const uint in_chunk = lane % 4 * 2 + j;
        const float value = acc[n][2 * h + j] / total[h] * sigmoid(float(gate[n * 8 + in_chunk]));
        mem.q[place_in_row<D>(r, n) + operand_place(in_chunk)] = bfloat(value);
      }
    }
  }
  simdgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = lane; i < 16 * CHUNKS; i += 32) {
    const uint r = sg * 16 + i / CHUNKS, token = first_token + r / packed;
    if (r < tokens * packed && token < p.rows)
      *(device vec<uint, 4>*)(out + (ulong(token) * p.heads + first_head + r % packed) * D + i % CHUNKS * 8) =
          *(threadgroup const vec<uint, 4>*)(mem.q + place_in_row<D>(r, i % CHUNKS));
  }
}
ENTRY_LARGE(attention_rows_mma_256, 256, 1, AttentionRowsMmaMemory<256>, attention_rows_mma<256>)
