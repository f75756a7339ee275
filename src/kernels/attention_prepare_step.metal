// What attention_step otherwise does itself for every split, as a launch of its own: queries and keys of one token with
// their norms and turned. `out` has the places of `projected`; values are copied, gates left out. A simdgroup takes one
// head: the query heads, then the key heads, then the value heads.
#include "attention_step.h"

template <int D, int ROTARY>
kernel void attention_prepare_step(device const float* projected [[buffer(0)]],
                                   device const float* q_norm [[buffer(1)]], device const float* k_norm [[buffer(2)]],
                                   device const float* turns [[buffer(3)]], device const StepState* step [[buffer(4)]],
                                   device float* out [[buffer(5)]], constant AttentionStep& p [[buffer(6)]],
                                   uint3 group [[threadgroup_position_in_grid]],
                                   uint sg [[simdgroup_index_in_threadgroup]],
                                   uint lane [[thread_index_in_simdgroup]]) {
  constexpr int N = D / 32;
  const uint job = group.x * 4 + sg;
  if (job >= p.heads + 2 * p.kv_heads) return;
  const bool is_query = job < p.heads, is_value = job >= p.heads + p.kv_heads;
  const uint place = (is_query ? 2 * job : p.heads + job) * D + lane * N;
  float v[N];
  read_floats<N>(projected + place, v);
  if (!is_value) norm_and_rope<D, ROTARY>(v, is_query ? q_norm : k_norm, turns + ulong(step->position) * ROTARY, p.eps, lane);
  METAL_PRAGMA_UNROLL
  for (int i = 0; i < N; ++i) out[place + i] = v[i];
}
ENTRY(attention_prepare_step_256, 128, attention_prepare_step<256, 64>)
ENTRY(attention_prepare_step_128, 128, attention_prepare_step<128, 32>)
