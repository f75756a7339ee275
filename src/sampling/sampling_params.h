// What a request can ask of the sampler.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace lily {

/// The steps in this order; the order and the meaning of the filters are those of Hugging Face's logits processors:
/// logit_bias, repetition_penalty, presence_penalty, frequency_penalty, temperature, top_k, top_p, min_p, draw.
struct SamplingParams {
  float temperature = 1.0F;  // [0, 100]; 0: greedy, the filters below then change nothing
  int top_k = 20;            // >= 0; the k most likely, of equal ones the lower ids; 0: all
  float top_p = 0.95F;       // [0, 1]; the smallest set of the most likely with at least this probability
  float min_p = 0.0F;        // [0, 1]; tokens of less than this times the most likely one's probability are dropped

  // Penalties look at the generated tokens only, never at the prompt.
  float presence_penalty = 0.0F;    // [-2, 2]; subtracted from the logit of each token that was generated
  float frequency_penalty = 0.0F;   // [-2, 2]; subtracted as often as it was generated
  float repetition_penalty = 1.0F;  // > 0; divides positive logits of generated tokens, multiplies negative ones

  std::map<std::int32_t, float> logit_bias;  // id -> [-100, 100], added to its logit
  std::optional<std::uint64_t> seed;         // none: from the system's entropy

  /// The model card's advice: thinking 1.0 / 0.95 / 20 / presence 1.5, without thinking 0.7 / 0.8 / 20 / presence 1.5.
  static SamplingParams defaults(bool thinking);

  /// Throws Error that names the parameter, its value and its range. `vocab`: number of ids.
  void validate(std::int32_t vocab) const;
};

}  // namespace lily
