// Where a timeline stands, kept on the device so that one recorded decode step can be replayed for every token.
#pragma once

#include "lily.h"

struct StepState {
  uint position;  // of the token that the step computes: so many tokens are in the caches
  uint drawn;     // tokens drawn so far; the newest is in slot drawn % kTokenSlots of the tokens
  uint stopped;   // a stop token was drawn: steps after it change nothing
};

constant constexpr uint kTokenSlots = 64;  // a power of two; the host may be this many tokens behind
constant constexpr uint kNoToken = ~0u;    // drawn when no logit is a number
