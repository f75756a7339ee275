// From logits to the next token: logit bias, penalties, filters (see sampling_params.h for their order), a seeded draw,
// and log-probabilities.
//
// Draws depend on nothing but the seed and the logits: std::mt19937_64, whose output the standard fixes, mapped to
// [0, 1) here, because the standard's distributions differ between libraries.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <unordered_map>
#include <vector>

#include "sampling/candidates.h"
#include "sampling/sampling_params.h"

namespace lily {

struct TokenLogprob {
  std::int32_t token = 0;
  float logprob = 0.0F;
};

struct Sampled {
  std::int32_t token = 0;
  float logprob = 0.0F;           // log_softmax of the model's logits over the real ids, before bias and filters
  std::vector<TokenLogprob> top;  // the `top_logprobs` most likely, best first; empty unless asked for
};

class Sampler {
 public:
  /// `vocab`: real ids are [0, vocab); what is above is padding and never sampled. `top_logprobs` -1: Sampled has no
  /// log-probabilities (and stays cheaper), 0: the token's own. Throws Error on a parameter out of range.
  Sampler(const SamplingParams& params, std::int32_t vocab, int top_logprobs = -1);

  /// `logits`: at least `vocab`. `allowed` (optional): one bit per id, lowest first, ids with 0 are never sampled. NaN
  /// counts as -inf, +inf as the largest float. Throws Error when no token is left.
  Sampled sample(std::span<const float> logits, std::span<const std::uint32_t> allowed = {});
  /// Log-probabilities of a token that was not drawn but given; same meaning as in sample().
  Sampled score(std::span<const float> logits, std::int32_t token);
  /// Counts a generated token for the penalties. sample() does not do it by itself: what was drawn may be replaced.
  void accept(std::int32_t token);

  /// For who draws in this sampler's place (DecodeLoop): the next random number in [0, 1), and the accepted tokens,
  /// each as often as it was accepted, in no order.
  double random_unit();
  std::vector<std::int32_t> accepted() const;

 private:
  void copy_logits(std::span<const float> logits);
  float log_probabilities(std::vector<TokenLogprob>& top);
  void apply_bias_and_penalties();
  void apply_mask(std::span<const std::uint32_t> allowed);
  std::int32_t choose();

  SamplingParams params_;
  std::int32_t vocab_;
  int top_logprobs_;
  std::mt19937_64 random_;
  std::unordered_map<std::int32_t, int> counts_;
  std::vector<float> logits_;   // the row being worked on, [vocab]
  std::vector<float> weights_;  // scratch of the log-probabilities, [vocab]
  Candidates candidates_;
};

}  // namespace lily
