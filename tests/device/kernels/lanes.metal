// Every function of the dialect that involves more than one thread, one result a row: out[row][thread].
#include "kernels/lily.h"

template <int T>
kernel void lanes(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                  uint3 group [[threadgroup_position_in_grid]], uint3 place [[thread_position_in_grid]],
                  uint3 size [[threads_per_threadgroup]], uint3 groups [[threadgroups_per_grid]],
                  uint simdgroups [[simdgroups_per_threadgroup]], uint tid [[thread_index_in_threadgroup]],
                  uint sg [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
  const float v = x[place.x];
  out += group.x * 18 * T + tid;
  out[0 * T] = simd_sum(v);
  out[1 * T] = simd_max(v);
  out[2 * T] = simd_min(v);
  out[3 * T] = simd_prefix_inclusive_sum(v);
  out[4 * T] = simd_prefix_exclusive_sum(v);
  out[5 * T] = simd_shuffle(v, ushort(31 - lane));
  out[6 * T] = simd_shuffle_xor(v, ushort(5));
  const float down = simd_shuffle_down(v, ushort(3));
  out[7 * T] = lane < 29 ? down : v;
  const float up = simd_shuffle_up(v, ushort(3));
  out[8 * T] = lane >= 3 ? up : v;
  out[9 * T] = simd_broadcast(v, ushort(7));
  out[10 * T] = simd_broadcast_first(v);
  out[11 * T] = float(simd_any(v > 30.f));
  out[12 * T] = float(simd_all(v < 30.f));
  out[13 * T] = float(tid * 1000 + sg * 100 + lane);
  out[14 * T] = float(size.x * 1000 + groups.x * 100 + simdgroups);
  out[15 * T] = float(simd_sum(uint(lane)));
  out[16 * T] = float(simd_max(int(lane) - 40));
  out[17 * T] = float(simd_prefix_exclusive_sum(uint(lane)));
}
ENTRY(lanes_64, 64, lanes<64>)

// 32-bit atomics in threadgroup and device memory: a histogram, and the least and greatest value.
struct HistogramMemory {
  atomic_uint counts[8];
};
template <int T>
kernel void histogram(device const uint* x [[buffer(0)]], device atomic_uint* counts [[buffer(1)]],
                      device atomic_int* extremes [[buffer(2)]], constant uint& n [[buffer(3)]],
                      uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]]) {
  SHARED(HistogramMemory, mem);
  if (tid < 8) atomic_store_explicit(&mem.counts[tid], 0u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint i = group.x * T + tid;
  if (i < n) {
    atomic_fetch_add_explicit(&mem.counts[x[i] % 8], 1u, memory_order_relaxed);
    atomic_fetch_min_explicit(&extremes[0], int(x[i]) - 100, memory_order_relaxed);
    atomic_fetch_max_explicit(&extremes[1], int(x[i]) - 100, memory_order_relaxed);
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (tid < 8) {
    const uint count = atomic_load_explicit(&mem.counts[tid], memory_order_relaxed);
    atomic_fetch_add_explicit(&counts[tid], count, memory_order_relaxed);
  }
}
ENTRY(histogram_64, 64, histogram<64>)
