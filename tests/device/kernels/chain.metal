// Small launches whose order shows: y = factor * x + y, and a kernel that asks for its weights early.
#include "kernels/lily.h"

struct Scaling {
  float factor;
  uint count;
};

template <int T>
kernel void scale_add(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                      constant Scaling& p [[buffer(2)]], uint3 group [[threadgroup_position_in_grid]],
                      uint tid [[thread_index_in_threadgroup]]) {
  const uint i = group.x * T + tid;
  if (i < p.count) y[i] = p.factor * x[i] + y[i];
}
ENTRY(scale_add_64, 64, scale_add<64>)

// y = weight * x
template <int T>
kernel void weigh(device const float* weight [[buffer(0)]], device const float* x [[buffer(1)]],
                  device float* y [[buffer(2)]], uint3 group [[threadgroup_position_in_grid]],
                  uint tid [[thread_index_in_threadgroup]]) {
  const uint i = group.x * T + tid;
  const float w = weight[i];
  wait_for_inputs();
  y[i] = w * x[i];
}
ENTRY_PREFETCH(weigh_64, 64, weigh<64>)
