// q = rope(rms_norm(q, q_norm)) * log2(e) / sqrt(D) in bf16 [rows, heads, D]; k = rope(rms_norm(k, k_norm)) and v to
// the cache. A simdgroup takes one head of one row: the query heads, then the key heads, then the value heads.
#include "attention_rows.h"

template <int D, int ROTARY>
kernel void attention_prepare(device const bfloat* projected [[buffer(0)]], device const float* q_norm [[buffer(1)]],
                              device const float* k_norm [[buffer(2)]], device const float* turns [[buffer(3)]],
                              device bfloat* q [[buffer(4)]], device bfloat* keys [[buffer(5)]],
                              device bfloat* values [[buffer(6)]], constant AttentionRows& p [[buffer(7)]],
                              uint3 group [[threadgroup_position_in_grid]], uint sg [[simdgroup_index_in_threadgroup]],
                              uint lane [[thread_index_in_simdgroup]]) {
  constexpr int N = D / 32;
  const uint row = group.y, job = group.x * 4 + sg, jobs = p.heads + 2 * p.kv_heads;
  if (job >= jobs) return;
  const bool is_query = job < p.heads, is_key = !is_query && job < p.heads + p.kv_heads;
  device const bfloat* from = projected + ulong(row) * p.stride + (is_query ? 2 * job : p.heads + job) * D + lane * N;
  float v[N];
  METAL_PRAGMA_UNROLL
  for (int i = 0; i < N; ++i) v[i] = float(from[i]);
  const uint kv_head = is_key ? job - p.heads : job - p.heads - p.kv_heads;
  const ulong place = ulong(p.position + row) * p.cache.token +
                      cache_offset(p.cache.head, p.cache.chunk, is_query ? 0 : kv_head, lane * N);
  if (is_query || is_key) {
    norm_and_rope<D, ROTARY>(v, is_query ? q_norm : k_norm, turns + ulong(p.position + row) * ROTARY, p.eps, lane);
  }
  device bfloat* to = is_query ? q + (ulong(row) * p.heads + job) * D + lane * N : (is_key ? keys : values) + place;
  const float scale = is_query ? rsqrt(float(D)) * 1.44269504f : 1.f;
  METAL_PRAGMA_UNROLL
  for (int i = 0; i < N; ++i) to[i] = bfloat(v[i] * scale);
}
ENTRY(attention_prepare_256, 128, attention_prepare<256, 64>)
ENTRY(attention_prepare_128, 128, attention_prepare<128, 32>)
