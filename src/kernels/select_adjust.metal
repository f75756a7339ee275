// adjusted = logits with bias and penalties; NaN and padding ids become kNone. tops = the maximum of each 32.
// kept = the logits as they are, for the host, until the step that draws a stop token.
#include "select.h"
#include "step_state.h"

METAL_FUNC float adjust(float logit, uint id, device const float* bias, device const uint* counts,
                        device const SelectParams* p) {
  if ((as_type<uint>(logit) & 0x7fffffffu) > 0x7f800000u || id >= p->vocab) return kNone;
  logit = clamp(logit, kNone, kMost);
  if (p->has_bias != 0u) logit += bias[id];
  const uint count = counts[id];
  if (count > 0) {
    logit = logit < 0.f ? logit * p->repetition_penalty : logit / p->repetition_penalty;
    logit -= p->presence_penalty + p->frequency_penalty * float(count);
  }
  return clamp(logit, kNone, kMost);
}

template <int THREADS>
kernel void adjust_logits(device const float* logits [[buffer(0)]], device const float* bias [[buffer(1)]],
                          device const uint* counts [[buffer(2)]], device const SelectParams* p [[buffer(3)]],
                          device const StepState* step [[buffer(4)]], device float* kept [[buffer(5)]],
                          device float* adjusted [[buffer(6)]], device float* tops [[buffer(7)]],
                          constant uint& rows [[buffer(8)]], uint3 group [[threadgroup_position_in_grid]],
                          uint tid [[thread_index_in_threadgroup]]) {
  const uint first = (group.x * THREADS + tid) * 4;
  wait_for_inputs();
  const bool stopped = step->stopped != 0;
  float top = kNone;
  METAL_PRAGMA_UNROLL
  for (uint i = 0; i < 4; ++i) {
    if (first + i < rows) {
      const float logit = logits[first + i];
      if (!stopped) kept[first + i] = logit;
      const float value = adjust(logit, first + i, bias, counts, p);
      adjusted[first + i] = value;
      top = max(top, value);
    }
  }
  METAL_PRAGMA_UNROLL
  for (int step = 1; step < 8; step *= 2) top = max(top, simd_shuffle_xor(top, ushort(step)));
  if (tid % 8 == 0 && first < rows) tops[first / kSelectGroup] = top;
}
ENTRY_PREFETCH(select_adjust, 256, adjust_logits<256>)
