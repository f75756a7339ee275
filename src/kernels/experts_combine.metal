// x[row] += sum over slots of share * out[position of (row, slot)] + shared share * out[the row's shared position]
#include "experts_plan.h"
#include "numeric.h"

struct ExpertsCombine {
  ExpertRows plan;
  uint hidden;
};

template <int THREADS>
kernel void experts_combine(device const bfloat* out [[buffer(0)]], device const uint* position_of [[buffer(1)]],
                            device const float* shares [[buffer(2)]], device const float* shared_shares [[buffer(3)]],
                            device float* x [[buffer(4)]], constant ExpertsCombine& p [[buffer(5)]],
                            uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]]) {
  const uint row = group.x, count = p.plan.count;
  for (uint column = tid * 8; column < p.hidden; column += THREADS * 8) {
    float sum[8], v[8];
    read_bf16x8(out + ulong(p.plan.rows * count + row) * p.hidden + column, v);
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < 8; ++i) sum[i] = shared_shares[row] * v[i];
    for (uint slot = 0; slot < count; ++slot) {
      const float share = shares[row * count + slot];
      read_bf16x8(out + ulong(position_of[row * count + slot]) * p.hidden + column, v);
      METAL_PRAGMA_UNROLL
      for (int i = 0; i < 8; ++i) sum[i] += share * v[i];
    }
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < 8; ++i) x[ulong(row) * p.hidden + column + i] += sum[i];
  }
}
ENTRY(experts_combine_256, 256, experts_combine<256>)
