// attention_step on the tensor cores. Keys are the left operand of the scores and the 8 query heads of a key/value head
// its columns; queries, and the weights of the values, go in as two bf16 parts (high + low) and so keep float32.
//
// A split's keys and values come into threadgroup memory 64 tokens at a time, the first 128 of them before the inputs
// are there. Simdgroup i takes tokens 16 (i % 4) .. + 15 of each 64, and of the result's dimensions the half i / 4. The
// split that has the new token puts it where it would have been copied to.
#include "../attention_step.h"
#include "../mma.h"

constant constexpr uint kStageTokens = 64;
constant constexpr uint kHeadSize = 256;

struct AttentionStepMmaMemory {
  bfloat keys[2][kStageTokens * kHeadSize], values[2][kStageTokens * kHeadSize];
  bfloat q[2][8][kHeadSize + 8];  // high, low
  bfloat new_key[kHeadSize], new_value[kHeadSize];
  float m[4][8], l[4][8];
};

METAL_FUNC uint cache_place(uint row, uint chunk) {
  return row * kHeadSize + (chunk ^ (row % 8)) * 8;
}

// Tokens first .. first + 63 of the `old` ones; those past the end repeat the last, or are zero if there is none.
METAL_FUNC void start_stage(device const bfloat* keys, device const bfloat* values, uint token_stride,
                            uint chunk_stride, uint first, uint old, threadgroup AttentionStepMmaMemory& mem, uint at,
                            uint tid) {
  METAL_PRAGMA_UNROLL
  for (uint i = 0; i < kStageTokens / 8; ++i) {
    const uint row = tid / 32 + i * 8, chunk = tid % 32;
    const ulong from = ulong(old > 0 ? min(first + row, old - 1) : 0u) * token_stride + ulong(chunk) * chunk_stride;
    start_copy(mem.keys[at] + cache_place(row, chunk), keys + from, old > 0);
    start_copy(mem.values[at] + cache_place(row, chunk), values + from, old > 0);
  }
}

template <int ROTARY>
kernel void attention_step_mma(device const float* projected [[buffer(0)]], device const float* q_norm [[buffer(1)]],
                               device const float* k_norm [[buffer(2)]], device const float* turns [[buffer(3)]],
                               device const StepState* step [[buffer(4)]], device bfloat* keys [[buffer(5)]],
                               device bfloat* values [[buffer(6)]], device float* part_o [[buffer(7)]],
                               device float* part_ml [[buffer(8)]], constant AttentionStep& p [[buffer(9)]],
                               uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                               uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  constexpr int D = kHeadSize, N = D / 32;
  LARGE_SHARED(AttentionStepMmaMemory, mem);
  const uint split = group.x, packed = p.packed, first_head = group.y * packed, per_kv = p.heads / p.kv_heads;
  const uint kv_head = first_head / per_kv, stride = p.cache.token, chunk_stride = p.cache.chunk;
  const uint position = step->position, tokens = position + 1;
  const uint span = ((p.span > 0 ? p.span : (tokens + p.splits - 1) / p.splits) + 15) / 16 * 16;
  const uint begin = min(split * span, tokens), end = min(begin + span, tokens);
  const bool has_new = begin < end && end == tokens;
  device const bfloat* head_keys = keys + ulong(kv_head) * p.cache.head;
  device const bfloat* head_values = values + ulong(kv_head) * p.cache.head;
  const uint stages = (end - begin + kStageTokens - 1) / kStageTokens;
  METAL_PRAGMA_UNROLL
  for (uint s = 0; s < 2; ++s) {
    if (s < stages)
      start_stage(head_keys, head_values, stride, chunk_stride, begin + s * kStageTokens, position, mem, s, tid);
    end_copy_group();
  }
  wait_for_inputs();

  device const float* turn = turns + ulong(position) * ROTARY;
  float v[N];
  if (sg < packed) {
    read_floats<N>(projected + (first_head + sg) * 2 * D + lane * N, v);
    if (p.prepared == 0) norm_and_rope<D, ROTARY>(v, q_norm, turn, p.eps, lane);
  }
  METAL_PRAGMA_UNROLL
  for (int i = 0; i < N; ++i) {
    const float scaled = sg < packed ? v[i] * rsqrt(float(D)) * 1.44269504f : 0.f;
    const bfloat high = bfloat(scaled);
    mem.q[0][sg][lane * N + i] = high;
    mem.q[1][sg][lane * N + i] = bfloat(scaled - float(high));
  }
  if (has_new && sg == 0) {
    device const float* k_row = projected + p.heads * 2 * D + kv_head * D;
    const ulong place = ulong(position) * stride + cache_offset(p.cache.head, chunk_stride, kv_head, lane * N);
    float value[N];
    read_floats<N>(k_row + lane * N, v);
    read_floats<N>(k_row + p.kv_heads * D + lane * N, value);
    if (p.prepared == 0) norm_and_rope<D, ROTARY>(v, k_norm, turn, p.eps, lane);
    const bool keeps = first_head % per_kv == 0;  // the others of the head need it too
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < N; ++i) {
      mem.new_key[lane * N + i] = bfloat(v[i]);
      mem.new_value[lane * N + i] = bfloat(value[i]);
      if (keeps) keys[place + i] = bfloat(v[i]);
      if (keeps) values[place + i] = bfloat(value[i]);
    }
  }

  const uint own = sg % 4 * 16, first_dim = sg / 4 * (D / 2), g = lane / 4, pair = lane % 4 * 2;
  float o[D / 32][4], m[2] = {-1e30f, -1e30f},
                      l[2] = {0.f, 0.f};  // dimensions by heads: the lane's heads are pair, pair + 1
  METAL_PRAGMA_UNROLL
  for (int i = 0; i < D / 32; ++i) o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0.f;
  for (uint s = 0; s < stages; ++s) {
    const uint at = s % 2, first = begin + s * kStageTokens;
    finish_copies<1>();
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (has_new && s == stages - 1) {
      const uint row = position - first;
      if (tid < D / 8) {
        *(threadgroup vec<uint, 4>*)(mem.keys[at] + cache_place(row, tid)) =
            *(threadgroup const vec<uint, 4>*)(mem.new_key + tid * 8);
        *(threadgroup vec<uint, 4>*)(mem.values[at] + cache_place(row, tid)) =
            *(threadgroup const vec<uint, 4>*)(mem.new_value + tid * 8);
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (first + own < end) {
      float score[2][4] = {{0.f, 0.f, 0.f, 0.f}, {0.f, 0.f, 0.f, 0.f}};  // tokens by heads, by the parts of q
      METAL_PRAGMA_UNROLL
      for (uint k = 0; k < D / 16; k += 2) {
        uint high[4], low[4];
        load_matrices<false>(high, &mem.q[0][lane % 8][k * 16 + lane / 8 * 8]);
        load_matrices<false>(low, &mem.q[1][lane % 8][k * 16 + lane / 8 * 8]);
        METAL_PRAGMA_UNROLL
        for (uint i = 0; i < 2; ++i) {
          uint a[4];
          load_matrices<false>(a, mem.keys[at] + cache_place(own + lane % 16, 2 * (k + i) + lane / 16));
          mma_16x8x16(score[0], a[0], a[1], a[2], a[3], high[2 * i], high[2 * i + 1]);
          mma_16x8x16(score[1], a[0], a[1], a[2], a[3], low[2 * i], low[2 * i + 1]);
        }
      }
      float weight[4];
      METAL_PRAGMA_UNROLL
      for (uint h = 0; h < 2; ++h) {
        float top = -1e30f, sum = 0.f;
        METAL_PRAGMA_UNROLL
        for (uint i = 0; i < 2; ++i) {
          const bool there = first + own + g + 8 * i < end;
          weight[2 * i + h] = there ? score[0][2 * i + h] + score[1][2 * i + h] : -1e30f;
          top = max(top, weight[2 * i + h]);
        }
        METAL_PRAGMA_UNROLL
        for (int lanes = 4; lanes < 32; lanes *= 2) top = max(top, simd_shuffle_xor(top, ushort(lanes)));
        const float m_new = max(m[h], top), rescale = exp2(m[h] - m_new);
        m[h] = m_new;
        METAL_PRAGMA_UNROLL
        for (int i = 0; i < 2; ++i) {
          weight[2 * i + h] = exp2(weight[2 * i + h] - m_new);
          sum += weight[2 * i + h];
        }
        l[h] = l[h] * rescale + sum;  // of the lane's own tokens; the lanes of a head meet at the end
        METAL_PRAGMA_UNROLL
        for (int i = 0; i < D / 32; ++i) {
          o[i][h] *= rescale;
          o[i][2 + h] *= rescale;
        }
      }
      uint high[2], low[2];
      METAL_PRAGMA_UNROLL
      for (int i = 0; i < 2; ++i) {
        const bfloat w0 = bfloat(weight[2 * i]), w1 = bfloat(weight[2 * i + 1]);
        high[i] = transpose_matrix(pair_of(w0, w1));
        low[i] = transpose_matrix(pair_of(bfloat(weight[2 * i] - float(w0)), bfloat(weight[2 * i + 1] - float(w1))));
      }
      METAL_PRAGMA_UNROLL
      for (uint i = 0; i < D / 32; ++i) {
        uint a[4];
        load_matrices<true>(
            a, mem.values[at] + cache_place(own + lane / 16 * 8 + lane % 8, first_dim / 8 + 2 * i + lane / 8 % 2));
        mma_16x8x16(o[i], a[0], a[1], a[2], a[3], high[0], high[1]);
        mma_16x8x16(o[i], a[0], a[1], a[2], a[3], low[0], low[1]);
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (s + 2 < stages) 
      start_stage(head_keys, head_values, stride, chunk_stride, first + 2 * kStageTokens, position, mem, at, tid);
    end_copy_group();
  }
  finish_copies<0>();

  // The four token groups meet in the memory of the keys: [group][dimension][8 heads].
  threadgroup float* all = (threadgroup float*)mem.keys[0];
  METAL_PRAGMA_UNROLL
  for (int h = 0; h < 2; ++h) {
    METAL_PRAGMA_UNROLL
    for (int lanes = 4; lanes < 32; lanes *= 2) l[h] += simd_shuffle_xor(l[h], ushort(lanes));
    if (g == 0 && sg < 4) {
      mem.m[sg][pair + h] = m[h];
      mem.l[sg][pair + h] = l[h];
    }
  }
  METAL_PRAGMA_UNROLL
  for (uint i = 0; i < D / 32; ++i) METAL_PRAGMA_UNROLL
  for (uint j = 0; j < 4; ++j) all[(sg % 4 * D + first_dim + i * 16 + g + j / 2 * 8) * 8 + pair + j % 2] = o[i][j];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint h = 0; h < packed; ++h) {
    float top = mem.m[0][h], sum = 0.f, total = 0.f;
    METAL_PRAGMA_UNROLL
    for (int k = 1; k < 4; ++k) top = max(top, mem.m[k][h]);
    METAL_PRAGMA_UNROLL
    for (int k = 0; k < 4; ++k) {
      const float weight = exp2(mem.m[k][h] - top);
      sum += weight * all[(k * D + tid) * 8 + h];
      total += weight * mem.l[k][h];
    }
    const uint place = (first_head + h) * p.splits + split;
    part_o[ulong(place) * D + tid] = sum;
    if (tid == 0) {
      part_ml[2 * place] = top;
      part_ml[2 * place + 1] = total;
    }
  }
}
ENTRY_PREFETCH_LARGE(attention_step_mma_256, 256, 1, AttentionStepMmaMemory, attention_step_mma<64>)
