// log g = -exp(A_log) softplus(a + dt_bias), beta = sigmoid(b): gates [rows, 2, value heads], log g first.
#include "delta_rows.h"
#include "numeric.h"

template <int THREADS>
kernel void gate_rows(device const bfloat* projected [[buffer(0)]], device const float* A_log [[buffer(1)]],
                      device const float* dt_bias [[buffer(2)]], device float* gates [[buffer(3)]],
                      constant DeltaRows& p [[buffer(4)]], uint3 group [[threadgroup_position_in_grid]],
                      uint tid [[thread_index_in_threadgroup]]) {
  const uint i = group.x * THREADS + tid, row = i / p.value_heads, head = i % p.value_heads;
  if (row >= p.rows) return;
  device const bfloat* ba = projected + ulong(row + 1) * p.stride - 2 * p.value_heads;
  const float b = float(ba[head]), a = float(ba[p.value_heads + head]);
  gates[row * 2 * p.value_heads + head] = -exp(A_log[head]) * softplus(a + dt_bias[head]);
  gates[(row * 2 + 1) * p.value_heads + head] = sigmoid(b);
}
ENTRY(gate_rows_128, 128, gate_rows<128>)
