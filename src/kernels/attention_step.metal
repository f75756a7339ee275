// Attention of one token over its cache, split over the cache's tokens; attention_merge puts the splits together.
//
//   q = rope(rms_norm(q, q_norm)) / sqrt(D);  k = rope(rms_norm(k, k_norm));  k, v go to the cache at `position`
//   per split and query head: m = max q k_t, l = sum exp(q k_t - m), o = sum exp(q k_t - m) v_t
//
// A threadgroup takes one split of one key/value head, for `packed` of its query heads. Its simdgroups stand in rows of
// 4 query heads (a row of the cache is read once for 4 heads) and in STREAMS columns that share out the split's tokens. A lane holds D / 32
// dimensions. Split 0 takes the new token too.
#include "attention_step.h"
#include "stream.h"

template <int D, int SIMDGROUPS>
struct AttentionStepMemory {
  float o[SIMDGROUPS / 2][4][D];
  float m[SIMDGROUPS][4], l[SIMDGROUPS][4];
};

// The lane's N values of four tokens from `first` on (tokens past `last` repeat it), two a word.
template <int N>
METAL_FUNC void read_rows(device const bfloat* own, uint stride, uint first, uint last, thread uint* words) {
  METAL_PRAGMA_UNROLL
  for (uint r = 0; r < 4; ++r) {
    device const bfloat* row = own + ulong(min(first + r, last)) * stride;
    METAL_PRAGMA_UNROLL
    for (uint i = 0; i < N / 4; ++i) {
      const vec<uint, 2> two = ((device const vec<uint, 2>*)row)[i];
      words[N / 2 * r + 2 * i] = two[0];
      words[N / 2 * r + 2 * i + 1] = two[1];
    }
  }
}
METAL_FUNC float half_of(thread const uint* words, int i) {
  return i % 2 == 0 ? low_half(words[i / 2]) : high_half(words[i / 2]);
}

// GROUP: query heads per key/value head at most, a multiple of 4. STREAMS is SIMDGROUPS / (GROUP / 4), a power of two.
template <int D, int ROTARY, int GROUP, int STREAMS>
kernel void attention_step(device const float* projected [[buffer(0)]], device const float* q_norm [[buffer(1)]],
                           device const float* k_norm [[buffer(2)]], device const float* turns [[buffer(3)]],
                           device const StepState* step [[buffer(4)]], device bfloat* keys [[buffer(5)]],
                           device bfloat* values [[buffer(6)]], device float* part_o [[buffer(7)]],
                           device float* part_ml [[buffer(8)]], constant AttentionStep& p [[buffer(9)]],
                           uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]],
                           uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  constexpr int N = D / 32, QUADS = GROUP / 4, SIMDGROUPS = QUADS * STREAMS;
  using Memory = AttentionStepMemory<D, SIMDGROUPS>;
  SHARED(Memory, mem);
  const uint split = group.x, quad = sg % QUADS, stream_index = sg / QUADS, packed = p.packed;
  const uint first_head = group.y * packed, per_kv = p.heads / p.kv_heads, kv_head = first_head / per_kv;
  const uint stride = p.cache.token, position = step->position;
  const uint chunk = p.span > 0 ? p.span : (position + p.splits - 1) / p.splits;
  const uint span = (chunk + 4 * STREAMS - 1) / (4 * STREAMS) * (4 * STREAMS);
  const uint begin = min(split * span, position), end = min(begin + span, position);
  const ulong own = cache_offset(p.cache.head, p.cache.chunk, kv_head, lane * N);
  device const bfloat* own_keys = keys + own;
  device const bfloat* own_values = values + own;

  uint k[2 * N], v[2 * N];
  uint t = begin + 4 * stream_index;
  if (t < end) {
    read_rows<N>(own_keys, stride, t, end - 1, k);
    read_rows<N>(own_values, stride, t, end - 1, v);
  }
  wait_for_inputs();

  device const float* turn = turns + ulong(position) * ROTARY;
  float q[4][N], o[4][N], m[4], l[4];
  METAL_PRAGMA_UNROLL
  for (uint h = 0; h < 4; ++h) {
    const uint head = first_head + min(quad * 4 + h, packed - 1);
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < N; ++i) q[h][i] = projected[head * 2 * D + lane * N + i];
    if (p.prepared == 0) norm_and_rope<D, ROTARY>(q[h], q_norm, turn, p.eps, lane);
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < N; ++i) {
      q[h][i] *= rsqrt(float(D)) * 1.44269504f;  // scores in powers of two
      o[h][i] = 0.f;
    }
    m[h] = -1e30f;
    l[h] = 0.f;
  }
  for (; t < end; t += 4 * STREAMS) {
    float s[16];
    METAL_PRAGMA_UNROLL
    for (int r = 0; r < 4; ++r) {
      METAL_PRAGMA_UNROLL
      for (int h = 0; h < 4; ++h) {
        s[4 * r + h] = 0.f;
        METAL_PRAGMA_UNROLL
        for (int i = 0; i < N; ++i) s[4 * r + h] += q[h][i] * half_of(k, N * r + i);
      }
    }
    const uint next = t + 4 * STREAMS;
    if (next < end) read_rows<N>(own_keys, stride, next, end - 1, k);
    float score = simd_sum_of_16(s, lane);  // lane 2 (4 r + h): row r, head h
    if (t + lane / 8 >= end) score = -1e30f;
    float top = max(score, simd_shuffle_xor(score, ushort(8)));
    top = max(top, simd_shuffle_xor(top, ushort(16)));
    METAL_PRAGMA_UNROLL
    for (int h = 0; h < 4; ++h) {
      const float m_new = max(m[h], simd_shuffle(top, ushort(2 * h)));
      const float rescale = exp2(m[h] - m_new);
      m[h] = m_new;
      l[h] *= rescale;
      METAL_PRAGMA_UNROLL
      for (int i = 0; i < N; ++i) o[h][i] *= rescale;
      METAL_PRAGMA_UNROLL
      for (int r = 0; r < 4; ++r) {
        const float e = exp2(simd_shuffle(score, ushort(2 * (4 * r + h))) - m_new);
        l[h] += e;
        METAL_PRAGMA_UNROLL
        for (int i = 0; i < N; ++i) o[h][i] += e * half_of(v, N * r + i);
      }
    }
    if (next < end) read_rows<N>(own_values, stride, next, end - 1, v);
  }

  if (split == 0 && stream_index == 0) {
    device const float* k_row = projected + p.heads * 2 * D + kv_head * D;
    device const float* v_row = k_row + p.kv_heads * D;
    const ulong place = ulong(position) * stride + own;
    float k_new[N], v_new[N];
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < N; ++i) k_new[i] = k_row[lane * N + i];
    if (p.prepared == 0) norm_and_rope<D, ROTARY>(k_new, k_norm, turn, p.eps, lane);
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < N; ++i) {
      const bfloat k_kept = bfloat(k_new[i]), v_kept = bfloat(v_row[lane * N + i]);
      if (quad == 0 && first_head % per_kv == 0) {
        keys[place + i] = k_kept;
        values[place + i] = v_kept;
      }
      k_new[i] = float(k_kept);
      v_new[i] = float(v_kept);
    }
    METAL_PRAGMA_UNROLL
    for (int h = 0; h < 4; ++h) {
      float dot = 0.f;
      METAL_PRAGMA_UNROLL
      for (int i = 0; i < N; ++i) dot += q[h][i] * k_new[i];
      dot = simd_sum(dot);
      const float m_new = max(m[h], dot), rescale = exp2(m[h] - m_new), e = exp2(dot - m_new);
      m[h] = m_new;
      l[h] = l[h] * rescale + e;
      METAL_PRAGMA_UNROLL
      for (int i = 0; i < N; ++i) o[h][i] = o[h][i] * rescale + e * v_new[i];
    }
  }

  // The streams of a quad meet: one half hands its sums to the other until one simdgroup has them all.
  METAL_PRAGMA_UNROLL
  for (int side = STREAMS / 2; side > 0; side /= 2) {
    const bool gives = stream_index >= uint(side) && stream_index < uint(2 * side), takes = stream_index < uint(side);
    if (gives) {
      METAL_PRAGMA_UNROLL
      for (int h = 0; h < 4; ++h) {
        METAL_PRAGMA_UNROLL
        for (int i = 0; i < N; ++i) mem.o[sg - side * QUADS][h][lane * N + i] = o[h][i];
        if (lane == 0) {
          mem.m[sg - side * QUADS][h] = m[h];
          mem.l[sg - side * QUADS][h] = l[h];
        }
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (takes) {
      METAL_PRAGMA_UNROLL
      for (int h = 0; h < 4; ++h) {
        const float m_new = max(m[h], mem.m[sg][h]);
        const float mine = exp2(m[h] - m_new), theirs = exp2(mem.m[sg][h] - m_new);
        m[h] = m_new;
        l[h] = l[h] * mine + mem.l[sg][h] * theirs;
        METAL_PRAGMA_UNROLL
        for (int i = 0; i < N; ++i) o[h][i] = o[h][i] * mine + mem.o[sg][h][lane * N + i] * theirs;
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  if (stream_index > 0) return;
  METAL_PRAGMA_UNROLL
  for (uint h = 0; h < 4; ++h) {
    if (quad * 4 + h < packed) {
      const uint place = (first_head + quad * 4 + h) * p.splits + split;
      METAL_PRAGMA_UNROLL
      for (int i = 0; i < N; ++i) part_o[ulong(place) * D + lane * N + i] = o[h][i];
      if (lane == 0) {
        part_ml[2 * place] = m[h];
        part_ml[2 * place + 1] = l[h];
      }
    }
  }
}
ENTRY_PREFETCH(attention_step_256, 256, attention_step<256, 64, 8, 4>)
ENTRY_PREFETCH(attention_step_128, 256, attention_step<128, 32, 8, 4>)
