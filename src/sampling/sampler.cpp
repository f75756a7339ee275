#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sampling/logits_math.h"
#include "support/error.h"

namespace lily {
namespace {

/// +inf would make NaN of differences.
float clamp_logit(float logit) {
  constexpr float kMax = std::numeric_limits<float>::max();
  return logit > kMax ? kMax : logit;
}

std::uint64_t entropy() {
  std::random_device device;
  return (static_cast<std::uint64_t>(device()) << 32) | device();
}

}  // namespace

Sampler::Sampler(const SamplingParams& params, std::int32_t vocab, int top_logprobs)
    : params_(params), vocab_(vocab), top_logprobs_(top_logprobs) {
  LILY_CHECK(vocab > 0);
  params.validate(vocab);
  if (top_logprobs < -1 || top_logprobs > vocab) {
    throw_error("top_logprobs is {}, expected a number from 0 to {}", top_logprobs, vocab);
  }
  random_.seed(params.seed ? *params.seed : entropy());
}

void Sampler::copy_logits(std::span<const float> logits) {
  const auto vocab = static_cast<std::size_t>(vocab_);
  if (logits.size() < vocab) {
    throw_error("the model has {} logits, fewer than the tokenizer's {} tokens: they do not belong together",
                logits.size(), vocab);
  }
  logits_.resize(vocab);
  for (std::size_t i = 0; i < vocab; ++i) logits_[i] = clamp_logit(logits[i]);
}

/// Of the copied logits: the logarithm of the sum of their exponentials, and the most likely tokens.
float Sampler::log_probabilities(std::vector<TokenLogprob>& top) {
  const float best = largest(logits_);
  weights_.resize(logits_.size());
  const float log_total = best + static_cast<float>(std::log(exp_weights(logits_, best, 1.0F, weights_)));
  if (top_logprobs_ > 0) {
    candidates_.select_top(logits_, static_cast<std::size_t>(top_logprobs_));
    for (std::size_t i = 0; i < candidates_.ids().size(); ++i) {
      top.push_back({candidates_.ids()[i], candidates_.logits()[i] - log_total});
    }
  }
  return log_total;
}

Sampled Sampler::score(std::span<const float> logits, std::int32_t token) {
  copy_logits(logits);
  LILY_CHECK(token >= 0 && static_cast<std::size_t>(token) < logits.size());
  Sampled result{.token = token};
  const float log_total = log_probabilities(result.top);
  result.logprob = clamp_logit(logits[static_cast<std::size_t>(token)]) - log_total;
  return result;
}

Sampled Sampler::sample(std::span<const float> logits, std::span<const std::uint32_t> allowed) {
  copy_logits(logits);
  Sampled result;
  const float log_total = top_logprobs_ >= 0 ? log_probabilities(result.top) : 0.0F;
  apply_bias_and_penalties();
  if (!allowed.empty()) apply_mask(allowed);
  result.token = choose();
  if (top_logprobs_ >= 0) result.logprob = clamp_logit(logits[static_cast<std::size_t>(result.token)]) - log_total;
  return result;
}

void Sampler::accept(std::int32_t token) {
  LILY_CHECK(token >= 0 && token < vocab_);
  ++counts_[token];
}

void Sampler::apply_bias_and_penalties() {
  for (const auto& [id, bias] : params_.logit_bias) logits_[static_cast<std::size_t>(id)] += bias;
  for (const auto& [id, count] : counts_) {
    float& logit = logits_[static_cast<std::size_t>(id)];
    const float repetition = params_.repetition_penalty;
    logit = logit < 0.0F ? logit * repetition : logit / repetition;
    logit -= params_.presence_penalty + params_.frequency_penalty * static_cast<float>(count);
    logit = clamp_logit(logit);
  }
}

void Sampler::apply_mask(std::span<const std::uint32_t> allowed) {
  LILY_CHECK(allowed.size() * 32 >= logits_.size());
  for (std::size_t word = 0; word * 32 < logits_.size(); ++word) {
    const std::uint32_t bits = allowed[word];
    if (bits == ~std::uint32_t{0}) continue;
    const std::size_t end = std::min(logits_.size(), (word + 1) * 32);
    for (std::size_t i = word * 32; i < end; ++i) {
      if ((bits >> (i % 32) & 1U) == 0) logits_[i] = kNoLogit;
    }
  }
}

std::int32_t Sampler::choose() {
  if (params_.temperature == 0.0F) {
    const float top = largest(logits_);
    const auto best = std::find(logits_.begin(), logits_.end(), top);
    if (top > kNoLogit) return static_cast<std::int32_t>(best - logits_.begin());
  } else {
    candidates_.select(logits_, params_);
    if (!candidates_.empty()) return candidates_.draw(random_unit());
  }
  throw Error("no token can be sampled: every logit is NaN, -inf or forbidden",
              "the weights may be damaged, or the constraints on the reply allow nothing");
}

/// The upper 53 bits of a draw, as a fraction.
double Sampler::random_unit() {
  return static_cast<double>(random_() >> 11) * 0x1.0p-53;
}

std::vector<std::int32_t> Sampler::accepted() const {
  std::vector<std::int32_t> tokens;
  for (const auto& [token, count] : counts_) tokens.insert(tokens.end(), static_cast<std::size_t>(count), token);
  return tokens;
}

}  // namespace lily
