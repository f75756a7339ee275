// Causal attention of a chunk over the cache, which holds the chunk's own keys and values already:
//
//   out = softmax(q k^T) v * sigmoid(gate) in operand order, q with its scale and in powers of two
//
// A threadgroup takes one key/value head and 32 packed rows: some tokens with query heads of that head. It goes
// over the keys twice, 32 at a time: first for each row's maximum and sum, then for the weighted values, so that sums
// in registers never have to be rescaled.
#include "attention_rows.h"
#include "operand.h"
#include "tile.h"

template <int D>
struct AttentionRowsMemory {
  bfloat q[32][D + 8];
  bfloat kv[64 * 40];       // 32 keys by 64 dimensions (rows of 72), or 64 dimensions by 32 values (rows of 40)
  float scores[2][32][32];  // two halves of each sum; later 32 rows by 64 dimensions of the result
  bfloat weights[32][40];
};

template <int D>
METAL_FUNC void make_scores(device const bfloat* head_keys, uint token_stride, uint chunk_stride, uint first, uint last,
                            threadgroup AttentionRowsMemory<D>& mem, uint tid, uint sg, uint lane) {
  Tile<16, 32> sum;
  sum.zero();
  const uint row = sg % 2 * 16, part = sg / 2;
  for (uint d = 0; d < D; d += 64) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = tid; i < 32 * 8; i += 128)
      *(threadgroup vec<uint, 4>*)&mem.kv[i / 8 * 72 + i % 8 * 8] =
          *(device const vec<uint, 4>*)(head_keys + ulong(min(first + i / 8, last)) * token_stride +
                                        ulong(d / 8 + i % 8) * chunk_stride);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum.template mma<32>(&mem.q[row][d + part * 32], D + 8, &mem.kv[part * 32], 72, lane);
  }
  sum.store(&mem.scores[part][row][0], 32, lane);
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

template <int D>
kernel void attention_rows(device const bfloat* q [[buffer(0)]], device const bfloat* keys [[buffer(1)]],
                           device const bfloat* values [[buffer(2)]], device const bfloat* projected [[buffer(3)]],
                           device bfloat* out [[buffer(4)]], constant AttentionRows& p [[buffer(5)]],
                           uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                           uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  using Memory = AttentionRowsMemory<D>;
  SHARED(Memory, mem);
  const uint packed = p.packed, tokens = 32 / packed, first_head = group.y * packed;
  const uint kv_head = first_head / (p.heads / p.kv_heads), first_token = group.x * tokens;
  device const bfloat* head_keys = keys + ulong(kv_head) * p.cache.head;
  device const bfloat* head_values = values + ulong(kv_head) * p.cache.head;
  const uint last_key = p.position + min(first_token + tokens, p.rows) - 1;
  for (uint i = tid; i < 32 * (D / 8); i += 128) {
    const uint r = i / (D / 8), token = min(first_token + r / packed, p.rows - 1);
    *(threadgroup vec<uint, 4>*)&mem.q[r][i % (D / 8) * 8] =
        *(device const vec<uint, 4>*)(q + (ulong(token) * p.heads + first_head + r % packed) * D + i % (D / 8) * 8);
  }
  // Four threads share a row: thread i of them has keys 8 i .. 8 i + 7 of each 32.
  const uint r = tid / 4, own = tid % 4 * 8, newest = p.position + first_token + r / packed;
  float top = -1e30f, total = 0.f;
  for (uint t = 0; t <= last_key; t += 32) {
    make_scores<D>(head_keys, p.cache.token, p.cache.chunk, t, last_key, mem, tid, sg, lane);
    float s[8], best = top;
    METAL_PRAGMA_UNROLL
    for (uint i = 0; i < 8; ++i) {
      s[i] = t + own + i <= newest ? mem.scores[0][r][own + i] + mem.scores[1][r][own + i] : -1e30f;
      best = max(best, s[i]);
    }
    best = max(best, simd_shuffle_xor(best, ushort(1)));
    best = max(best, simd_shuffle_xor(best, ushort(2)));
    float sum = 0.f;
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < 8; ++i) sum += exp2(s[i] - best);
    sum += simd_shuffle_xor(sum, ushort(1));
    sum += simd_shuffle_xor(sum, ushort(2));
    total = total * exp2(top - best) + sum;
    top = best;
  }
  Tile<16, 32> acc[D / 64];
  METAL_PRAGMA_UNROLL
  for (int j = 0; j < D / 64; ++j) acc[j].zero();
  const uint row = sg % 2 * 16, column = sg / 2 * 32;
  for (uint t = 0; t <= last_key; t += 32) {
    make_scores<D>(head_keys, p.cache.token, p.cache.chunk, t, last_key, mem, tid, sg, lane);
    METAL_PRAGMA_UNROLL
    for (uint i = 0; i < 8; ++i) {
      const float s = mem.scores[0][r][own + i] + mem.scores[1][r][own + i];
      mem.weights[r][own + i] = bfloat(t + own + i <= newest ? exp2(s - top) : 0.f);
    }
    METAL_PRAGMA_UNROLL
    for (uint j = 0; j < D / 64; ++j) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      for (uint i = tid; i < 32 * 8; i += 128) {  // transposed: the product takes both operands by rows
        const uint key = i % 32, d = i / 32 * 8;
        const vec<uint, 4> words =
            *(device const vec<uint, 4>*)(head_values + ulong(min(t + key, last_key)) * p.cache.token +
                                          ulong(j * 8 + d / 8) * p.cache.chunk);
        METAL_PRAGMA_UNROLL
        for (uint w = 0; w < 4; ++w) {
          mem.kv[(d + 2 * w) * 40 + key] = as_type<bfloat>(ushort(words[w] & 0xffffu));
          mem.kv[(d + 2 * w + 1) * 40 + key] = as_type<bfloat>(ushort(words[w] >> 16));
        }
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
      acc[j].template mma<32>(&mem.weights[row][0], 40, &mem.kv[column * 40], 40, lane);
    }
  }
  threadgroup float* result = &mem.scores[0][0][0];
  METAL_PRAGMA_UNROLL
  for (uint j = 0; j < D / 64; ++j) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    acc[j].store(result + row * 64 + column, 64, lane);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint token = first_token + r / packed, head = first_head + r % packed;
    if (r < tokens * packed && token < p.rows) {
      METAL_PRAGMA_UNROLL
      for (uint i = 0; i < 2; ++i) {
        const uint d = j * 64 + own * 2 + i * 8;
        float gate[8], v[8];
        read_bf16x8(projected + ulong(token) * p.stride + head * 2 * D + D + d, gate);
        METAL_PRAGMA_UNROLL
        for (int c = 0; c < 8; ++c) v[c] = result[r * 64 + own * 2 + i * 8 + c] / total * sigmoid(gate[c]);
        *(device vec<uint, 4>*)(out + (ulong(token) * p.heads + head) * D + d) = operand_words(v);
      }
    }
  }
}
ENTRY(attention_rows_256, 128, attention_rows<256>)
ENTRY(attention_rows_128, 128, attention_rows<128>)
