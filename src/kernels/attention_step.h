// What attention_step and its body for tensor cores share with the host.
#pragma once

#include "attention.h"
#include "step_state.h"

struct AttentionStep {
  uint heads;  // query heads
  uint kv_heads;
  uint splits;
  uint span;      // tokens of a split; 0: what the timeline's length shared out makes
  uint packed;    // query heads of a threadgroup: all of a key/value head's, or fewer
  uint prepared;  // 1: queries and keys come with their norms and turned
  CacheStrides cache;
  float eps;
};
