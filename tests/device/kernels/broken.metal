// Kernels that break a rule, one each: the emulator has to say so.
#include "kernels/lily.h"

struct Values {
  float v[64];
};
struct TooManyValues {
  float v[8200];
};

template <int T>
kernel void missing_barrier(device float* y [[buffer(0)]], uint tid [[thread_index_in_threadgroup]]) {
  SHARED(Values, mem);
  mem.v[tid] = float(tid);
  y[tid] = mem.v[T - 1 - tid];
}
ENTRY(broken_missing_barrier, 64, missing_barrier<64>)

template <int T>
kernel void leaves_before_barrier(device float* y [[buffer(0)]], uint tid [[thread_index_in_threadgroup]]) {
  if (tid == 3) return;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[tid] = T;
}
ENTRY(broken_leaves_before_barrier, 64, leaves_before_barrier<64>)

template <int T>
kernel void two_barriers(device float* y [[buffer(0)]], uint tid [[thread_index_in_threadgroup]]) {
  if (tid < 32)
    threadgroup_barrier(mem_flags::mem_threadgroup);
  else
    threadgroup_barrier(mem_flags::mem_threadgroup);
  y[tid] = T;
}
ENTRY(broken_two_barriers, 64, two_barriers<64>)

template <int T>
kernel void lanes_diverge(device float* y [[buffer(0)]], uint tid [[thread_index_in_threadgroup]]) {
  if (tid % 2 == 0)
    y[tid] = simd_sum(float(T));
  else
    y[tid] = simd_max(float(T));
}
ENTRY(broken_lanes_diverge, 64, lanes_diverge<64>)

template <int T>
kernel void lane_missing(device float* y [[buffer(0)]], uint tid [[thread_index_in_threadgroup]]) {
  if (tid % 32 != 9) y[tid] = simd_sum(float(T));
}
ENTRY(broken_lane_missing, 64, lane_missing<64>)

template <int T>
kernel void deadlock(device float* y [[buffer(0)]], uint tid [[thread_index_in_threadgroup]]) {
  if (tid % 32 < 16)
    threadgroup_barrier(mem_flags::mem_threadgroup);
  else
    y[tid] = simd_sum(float(T));
}
ENTRY(broken_deadlock, 64, deadlock<64>)

template <int T>
kernel void too_much_memory(device float* y [[buffer(0)]], uint tid [[thread_index_in_threadgroup]]) {
  SHARED(TooManyValues, mem);
  mem.v[tid] = T;
  y[tid] = mem.v[tid];
}
ENTRY(broken_too_much_memory, 64, too_much_memory<64>)

template <int T>
kernel void never_waits(device float* y [[buffer(0)]], uint tid [[thread_index_in_threadgroup]]) {
  y[tid] = T;
}
ENTRY_PREFETCH(broken_never_waits, 64, never_waits<64>)

template <int T>
kernel void reads_too_early(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
                            uint tid [[thread_index_in_threadgroup]]) {
  const float early = x[tid];
  wait_for_inputs();
  y[tid] = T * early;
}
ENTRY_PREFETCH(broken_reads_too_early, 64, reads_too_early<64>)

template <int T>
kernel void groups_share(device float* y [[buffer(0)]], uint3 group [[threadgroup_position_in_grid]],
                         uint tid [[thread_index_in_threadgroup]]) {
  y[tid] = float(group.x) + y[tid + T];
  y[tid + T] = float(group.x);
}
ENTRY(broken_groups_share, 64, groups_share<64>)

template <int T>
kernel void writes_past_buffer(device float* y [[buffer(0)]], uint tid [[thread_index_in_threadgroup]]) {
  y[tid + 1] = T;
}
ENTRY(broken_writes_past_buffer, 64, writes_past_buffer<64>)

template <int T>
kernel void writes_past_shared(device float* y [[buffer(0)]], uint tid [[thread_index_in_threadgroup]]) {
  SHARED(Values, mem);
  (&mem.v[0])[tid + 1] = T;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  y[tid] = mem.v[tid];
}
ENTRY(broken_writes_past_shared, 64, writes_past_shared<64>)
