// Choosing the next token on the device: what the two select kernels share.
//
// The order is the sampler's: bias, repetition, presence and frequency penalty; then temperature, top-k, top-p, min-p;
// then the first id, in the order of ids, at which the running sum of the kept weights exceeds u times their total,
// with a u in [0, 1) that the host made.
#pragma once

#include "numeric.h"
#include "step_state.h"

constant constexpr uint kMaxStops = 8;

struct SelectParams {
  float temperature;  // 0: the largest logit, of equal ones the lowest id
  uint top_k;         // 0: all
  float top_p;
  float min_p;
  float presence_penalty;
  float frequency_penalty;
  float repetition_penalty;
  uint has_bias;
  uint vocab;  // real ids; what is above is never drawn
  uint stops;  // how many of `stop` are in use
  uint stop[kMaxStops];
};

constant constexpr uint kSelectGroup = 32;  // logits that share a maximum
constant constexpr float kNone = -3.0e38f;  // can never be drawn
constant constexpr float kMost = 3.0e38f;
