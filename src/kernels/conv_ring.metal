// ring[position % 4] = the conv's inputs of the chunk's last tokens, 4 at most.
#include "delta_rows.h"

template <int THREADS>
kernel void conv_ring(device const bfloat* projected [[buffer(0)]], device float* ring [[buffer(1)]],
                      constant uint& channels [[buffer(2)]], constant DeltaRows& p [[buffer(3)]],
                      uint3 group [[threadgroup_position_in_grid]], uint tid [[thread_index_in_threadgroup]]) {
  const uint channel = group.x * THREADS + tid;
  if (channel >= channels || group.y >= p.rows) return;
  const uint row = p.rows - 1 - group.y;
  ring[(p.position + row) % 4 * channels + channel] = float(projected[ulong(row) * p.stride + channel]);
}
ENTRY(conv_ring_256, 256, conv_ring<256>)
