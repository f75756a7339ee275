// From logits to the next token: penalties, logit bias, temperature, top-k, top-p, min-p, seed; log-probabilities.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <unordered_map>
#include <vector>

namespace lily {

struct SamplingParams {
  float temperature = 1.0F;  // 0: greedy
  int top_k = 20;            // 0: all
  float top_p = 0.95F;
  float min_p = 0.0F;
  // Penalties look at the generated tokens only, never at the prompt.
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  float repetition_penalty = 1.0F;
  std::map<std::int32_t, float> logit_bias;
  std::optional<std::uint64_t> seed;  // none: from the system's entropy

  /// The model card's advice: thinking 1.0 / 0.95 / 20 / presence 1.5, without thinking 0.7 / 0.8 / 20 / presence 1.5.
  static SamplingParams defaults(bool thinking);
};

struct TokenLogprob {
  std::int32_t token = 0;
  float logprob = 0.0F;
};

struct Sampled {
  std::int32_t token = 0;
  float logprob = 0.0F;           // of the distribution before sampling filters: log_softmax of the model's logits
  std::vector<TokenLogprob> top;  // the `top_logprobs` most likely, best first; empty unless asked for
};

class Sampler {
 public:
  /// `vocab`: real ids are [0, vocab); what is above is padding and never sampled. Throws Error on a parameter out of
  /// range.
  Sampler(const SamplingParams& params, std::int32_t vocab, int top_logprobs = -1);  // -1: no log-probabilities

  /// `logits` is changed in place. `allowed` (optional): one bit per id, lowest first, ids with 0 are never sampled.
  Sampled sample(std::span<float> logits, std::span<const std::uint32_t> allowed = {});
  /// Counts a generated token for the penalties. sample() does not do it by itself: what was drawn may be replaced.
  void accept(std::int32_t token);

 private:
  SamplingParams params_;
  std::int32_t vocab_;
  int top_logprobs_;
  std::mt19937_64 random_;
  std::unordered_map<std::int32_t, int> counts_;
  std::vector<TokenLogprob> candidates_;
};

}  // namespace lily
