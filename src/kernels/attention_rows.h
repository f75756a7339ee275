// What the many-row attention kernels share. A chunk is consecutive tokens of one timeline.
#pragma once

#include "attention.h"

struct AttentionRows {
  uint rows;      // of the chunk
  uint position;  // of its first token
  uint heads;     // query heads
  uint kv_heads;
  uint packed;  // query heads of a threadgroup: all of a key/value head's, or fewer
  uint stride;  // of a row of `projected`: per head query | gate, then k, then v
  CacheStrides cache;
  float eps;
};
