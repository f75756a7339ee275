// What attention_step and its body for tensor cores share with the host.
#pragma once

#include "attention.h"
#include "step_state.h"

struct AttentionStep {
  uint heads;  // query heads
  uint kv_heads;
  uint splits;
  float eps;
};
