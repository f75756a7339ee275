// What the delta rule's step kernels share: the depthwise convolution of one token, over its last 4 inputs. Those are kept
// in a ring [4, channels] by position.
#pragma once

#include "numeric.h"
#include "step_state.h"

struct GatedDeltaStep {
  uint key_heads;
  uint value_heads;
  float eps;
};

// One channel's conv: its taps and its last three inputs, known before the token's own.
struct ConvChannel {
  vec<float, 4> tap;
  float past[3];
};
METAL_FUNC ConvChannel conv_channel(device const float* ring, device const float* taps, uint channels, uint channel,
                                    uint position) {
  ConvChannel c;
  c.tap = ((device const vec<float, 4>*)taps)[channel];
  METAL_PRAGMA_UNROLL
  for (uint i = 0; i < 3; ++i) c.past[i] = ring[((position + i + 1) % 4) * channels + channel];
  return c;
}
METAL_FUNC float convolve(ConvChannel c, float now) {
  return silu(c.tap[0] * c.past[0] + c.tap[1] * c.past[1] + c.tap[2] * c.past[2] + c.tap[3] * now);
}
