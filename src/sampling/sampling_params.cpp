#include "sampling/sampling_params.h"

#include <cmath>
#include <limits>

#include "support/error.h"

namespace lily {
namespace {

void expect_range(const char* name, float value, float low, float high) {
  // Not (value < low || value > high): NaN must fail too.
  if (!(value >= low && value <= high))
    throw_error("{} is {}, expected a number from {} to {}", name, value, low, high);
}

}  // namespace

SamplingParams SamplingParams::defaults(bool thinking) {
  SamplingParams params;
  params.temperature = thinking ? 1.0F : 0.7F;
  params.top_p = thinking ? 0.95F : 0.8F;
  params.top_k = 20;
  params.presence_penalty = 1.5F;
  return params;
}

void SamplingParams::validate(std::int32_t vocab) const {
  expect_range("temperature", temperature, 0.0F, 100.0F);
  if (top_k < 0) throw_error("top_k is {}, expected 0 (all tokens) or more", top_k);
  expect_range("top_p", top_p, 0.0F, 1.0F);
  expect_range("min_p", min_p, 0.0F, 1.0F);
  expect_range("presence_penalty", presence_penalty, -2.0F, 2.0F);
  expect_range("frequency_penalty", frequency_penalty, -2.0F, 2.0F);
  if (!(repetition_penalty > 0.0F) || !std::isfinite(repetition_penalty)) {
    throw_error("repetition_penalty is {}, expected a number above 0 (1 is none)", repetition_penalty);
  }
  for (const auto& [id, bias] : logit_bias) {
    if (id < 0 || id >= vocab) throw_error("logit_bias names token {}, expected an id from 0 to {}", id, vocab - 1);
    if (!(bias >= -100.0F && bias <= 100.0F)) {
      throw_error("logit_bias of token {} is {}, expected a number from -100 to 100", id, bias);
    }
  }
}

}  // namespace lily
