// The sampler against NumPy's distributions (tests/golden/sampling.json, made by
// tools/goldens/make_sampling_goldens.py) and against its own contract: seeds, draws, masks, damaged logits,
// log-probabilities, errors.
#include "sampling/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "support/error.h"

namespace lily {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

SamplingParams plain(std::uint64_t seed = 1) {
  SamplingParams params;
  params.top_k = 0;
  params.top_p = 1.0F;
  params.seed = seed;
  return params;
}

std::vector<float> normal_logits(std::size_t count, float scale, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<float> logits(count);
  for (float& logit : logits) {
    float sum = -6.0F;  // twelve uniform numbers are normal enough
    for (int i = 0; i < 12; ++i) sum += static_cast<float>(random() >> 40) / 16777216.0F;
    logit = scale * sum;
  }
  return logits;
}

nlohmann::json golden_cases() {
  std::ifstream file(std::string(LILY_SOURCE_DIR) + "/tests/golden/sampling.json");
  return nlohmann::json::parse(file);
}

SamplingParams params_of(const nlohmann::json& golden) {
  SamplingParams params = plain();
  params.temperature = golden["temperature"];
  params.top_k = golden["top_k"];
  params.top_p = golden["top_p"];
  params.min_p = golden["min_p"];
  params.presence_penalty = golden["presence_penalty"];
  params.frequency_penalty = golden["frequency_penalty"];
  params.repetition_penalty = golden["repetition_penalty"];
  for (const auto& pair : golden["logit_bias"]) params.logit_bias[pair[0]] = pair[1];
  return params;
}

std::vector<std::uint32_t> mask_without(const nlohmann::json& forbidden, std::size_t vocab) {
  std::vector<std::uint32_t> mask((vocab + 31) / 32, ~0U);
  for (const std::size_t id : forbidden) mask[id / 32] &= ~(1U << (id % 32));
  return mask;
}

// The filters alone. Penalties and mask are applied here once more, in the order that sampling_params.h gives.
TEST(Candidates, HaveNumPysDistribution) {
  for (const auto& golden : golden_cases()) {
    SCOPED_TRACE(golden.dump().substr(0, 300));
    const SamplingParams params = params_of(golden);
    std::vector<float> logits = golden["logits"];
    std::map<std::int32_t, int> counts;
    for (const int id : golden["generated"]) ++counts[id];
    for (const auto& [id, bias] : params.logit_bias) logits[static_cast<std::size_t>(id)] += bias;
    for (const auto& [id, count] : counts) {
      float& logit = logits[static_cast<std::size_t>(id)];
      logit = logit < 0 ? logit * params.repetition_penalty : logit / params.repetition_penalty;
      logit -= params.presence_penalty + params.frequency_penalty * static_cast<float>(count);
    }
    for (const std::size_t id : golden["forbidden"]) logits[id] = -kInf;

    Candidates candidates;
    candidates.select(logits, params);
    ASSERT_EQ(std::vector<int>(candidates.ids().begin(), candidates.ids().end()),
              golden["kept"].get<std::vector<int>>());
    for (std::size_t i = 0; i < candidates.ids().size(); ++i) {
      EXPECT_NEAR(candidates.weights()[i] / candidates.total(), golden["probs"][i].get<double>(), 2e-6);
    }
  }
}

// The whole sampler: draws are counted and compared by chi-square (99.99% quantile by Wilson and Hilferty).
TEST(Sampler, DrawsNumPysDistribution) {
  constexpr int kDraws = 10000;
  for (const auto& golden : golden_cases()) {
    SCOPED_TRACE(golden.dump().substr(0, 300));
    const std::vector<float> logits = golden["logits"];
    Sampler sampler(params_of(golden), static_cast<std::int32_t>(logits.size()));
    for (const int id : golden["generated"]) sampler.accept(id);
    const auto mask = mask_without(golden["forbidden"], logits.size());
    std::vector<int> drawn(logits.size());
    for (int i = 0; i < kDraws; ++i) ++drawn[static_cast<std::size_t>(sampler.sample(logits, mask).token)];

    double chi_square = 0.0, rare_expected = 0.0;
    int degrees = 0, rare_drawn = 0, total = 0;
    const std::vector<std::size_t> kept = golden["kept"];
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const double expected = kDraws * golden["probs"][i].get<double>();
      total += drawn[kept[i]];
      if (expected < 5) {
        rare_expected += expected;
        rare_drawn += drawn[kept[i]];
        continue;
      }
      chi_square += std::pow(drawn[kept[i]] - expected, 2) / expected;
      ++degrees;
    }
    if (rare_expected >= 5) {
      chi_square += std::pow(rare_drawn - rare_expected, 2) / rare_expected;
      ++degrees;
    }
    EXPECT_EQ(total, kDraws) << "a token outside of the kept set was drawn";
    if (--degrees < 1) continue;
    const double a = 2.0 / (9.0 * degrees);
    EXPECT_LT(chi_square, degrees * std::pow(1 - a + 3.719 * std::sqrt(a), 3));
  }
}

TEST(Sampler, SameSeedSameTokensOnEveryPlatform) {
  const std::vector<float> logits = normal_logits(1000, 1.0F, 3);
  Sampler a(plain(7), 1000), b(plain(7), 1000), other(plain(8), 1000);
  std::vector<int> first, second, third;
  for (int i = 0; i < 50; ++i) {
    first.push_back(a.sample(logits).token);
    second.push_back(b.sample(logits).token);
    third.push_back(other.sample(logits).token);
  }
  EXPECT_EQ(first, second);
  EXPECT_NE(first, third);

  // Equal logits show the draws themselves: floor(10 u), with u from an engine whose outputs the C++ standard fixes.
  const std::vector<float> equal(10, 0.5F);
  Sampler sampler(plain(42), 10);
  std::mt19937_64 engine(42);
  for (int i = 0; i < 100; ++i) {
    const double u = static_cast<double>(engine() >> 11) / 9007199254740992.0;
    EXPECT_EQ(sampler.sample(equal).token, static_cast<int>(u * 10.0));
  }
}

TEST(Sampler, WithoutASeedDrawsDiffer) {
  const std::vector<float> equal(1000, 0.0F);
  SamplingParams params = plain();
  params.seed.reset();
  Sampler a(params, 1000), b(params, 1000);
  int same = 0;
  for (int i = 0; i < 20; ++i) same += a.sample(equal).token == b.sample(equal).token ? 1 : 0;
  EXPECT_LT(same, 10);
}

TEST(Sampler, GreedyTakesTheFirstOfTheBest) {
  SamplingParams params = plain();
  params.temperature = 0.0F;
  Sampler sampler(params, 40);
  std::vector<float> logits(40, 1.0F);
  EXPECT_EQ(sampler.sample(logits).token, 0);
  logits[17] = logits[33] = 2.0F;
  EXPECT_EQ(sampler.sample(logits).token, 17);
  params.presence_penalty = 2.0F;
  Sampler penalised(params, 40);
  penalised.accept(17);
  EXPECT_EQ(penalised.sample(logits).token, 33);
}

TEST(Sampler, TopKOfEqualLogitsTakesTheLowerIds) {
  SamplingParams params = plain();
  params.top_k = 3;
  Candidates candidates;
  const std::vector<float> equal(5000, 1.0F);
  candidates.select(equal, params);
  EXPECT_EQ(std::vector<int>(candidates.ids().begin(), candidates.ids().end()), (std::vector<int>{0, 1, 2}));
}

// A plain sort of the whole vocabulary, as the filters' definition says, against the pruned selection.
TEST(Candidates, EqualAFullSortOnALargeVocabulary) {
  constexpr std::size_t kVocab = 30011;
  for (unsigned seed = 0; seed < 24; ++seed) {
    SamplingParams params = plain();
    params.top_k = std::array{0, 1, 20, 117, 118, 5000, 40000, 3}[seed % 8];
    params.top_p = std::array{1.0F, 0.9F, 0.5F}[seed % 3];
    params.temperature = std::array{0.5F, 1.0F, 3.0F, 0.05F}[seed % 4];
    std::vector<float> logits = normal_logits(kVocab, 2.0F, seed);
    for (float& logit : logits) logit = std::round(logit * 64.0F) / 64.0F;  // many ties, as bf16 logits have
    Candidates candidates;
    candidates.select(logits, params);

    std::vector<std::int32_t> order(kVocab);
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](int a, int b) { return logits[a] > logits[b] || (logits[a] == logits[b] && a < b); });
    if (params.top_k > 0 && params.top_k < static_cast<int>(kVocab)) order.resize(params.top_k);
    double total = 0.0, before = 0.0;
    auto weight = [&](int id) { return std::exp((double{logits[id]} - logits[order[0]]) / params.temperature); };
    for (const int id : order) total += weight(id);
    std::size_t kept = 0;
    while (kept < order.size() && (kept == 0 || before < params.top_p * total)) before += weight(order[kept++]);
    order.resize(params.top_p < 1.0F ? kept : order.size());
    std::sort(order.begin(), order.end());
    // Sums in another order may move the cut by a token or two of the least likely kept.
    EXPECT_NEAR(static_cast<double>(candidates.ids().size()), static_cast<double>(order.size()), 2.0) << seed;
    if (candidates.ids().size() == order.size()) {
      EXPECT_EQ(std::vector<std::int32_t>(candidates.ids().begin(), candidates.ids().end()), order) << seed;
    }
  }
}

TEST(Sampler, NeverDrawsPaddingOrForbiddenIds) {
  std::vector<float> logits(100, 0.0F);
  for (std::size_t i = 70; i < 100; ++i) logits[i] = 50.0F;  // padding looks best
  Sampler sampler(plain(), 70);
  const std::vector<std::uint32_t> mask{0x0000fff0U, 0x1U, 0x20U};
  for (int i = 0; i < 2000; ++i) {
    EXPECT_LT(sampler.sample(logits).token, 70);
    const int token = sampler.sample(logits, mask).token;
    EXPECT_TRUE((token >= 4 && token < 16) || token == 32 || token == 69) << token;
  }
}

TEST(Sampler, SurvivesDamagedLogits) {
  for (const float temperature : {0.0F, 1e-30F, 0.7F, 100.0F}) {
    SamplingParams params = plain();
    params.temperature = temperature;
    params.top_p = 0.9F;
    params.min_p = 0.01F;
    Sampler sampler(params, 5, 5);
    EXPECT_EQ(sampler.sample(std::vector<float>{kNaN, -kInf, 1.0F, kNaN, -kInf}).token, 2);
    EXPECT_EQ(sampler.sample(std::vector<float>{0.0F, 3e38F, kInf, kNaN, -3e38F}).token, 2);
    EXPECT_EQ(sampler.sample(std::vector<float>{-3e38F, kNaN, -kInf, kNaN, kNaN}).token, 0);
    EXPECT_THROW(sampler.sample(std::vector<float>(5, kNaN)), Error);
    EXPECT_THROW(sampler.sample(std::vector<float>(5, -kInf)), Error);
    EXPECT_THROW(sampler.sample(std::vector<float>(5, 1.0F), std::vector<std::uint32_t>{0}), Error);
    EXPECT_THROW(sampler.sample(std::vector<float>(4, 1.0F)), Error);
  }
}

TEST(Sampler, LogProbabilitiesAreTheModelsOwn) {
  const std::vector<float> logits = normal_logits(3000, 2.0F, 9);
  double total = 0.0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));
  SamplingParams params = plain();
  params.top_k = 5;
  params.temperature = 0.5F;
  params.logit_bias[12] = 100.0F;  // always drawn, though unlikely
  Sampler sampler(params, 3000, 6);
  const Sampled sampled = sampler.sample(logits);
  EXPECT_EQ(sampled.token, 12);
  EXPECT_NEAR(sampled.logprob, logits[12] - std::log(total), 1e-4);
  ASSERT_EQ(sampled.top.size(), 6U);
  std::vector<float> sorted = logits;
  std::sort(sorted.rbegin(), sorted.rend());
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(logits[static_cast<std::size_t>(sampled.top[i].token)], sorted[i]);
    EXPECT_NEAR(sampled.top[i].logprob, sorted[i] - std::log(total), 1e-4);
  }
  Sampler own(params, 3000, 0);
  EXPECT_TRUE(own.sample(logits).top.empty());
}

TEST(Sampler, RejectsParametersOutOfRange) {
  const auto message = [](auto change) -> std::string {
    SamplingParams params = plain();
    change(params);
    try {
      Sampler sampler(params, 100);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message([](SamplingParams&) {}), "accepted");
  EXPECT_EQ(message([](SamplingParams& p) { p.temperature = -1.0F; }),
            "temperature is -1, expected a number from 0 to 100");
  EXPECT_NE(message([](SamplingParams& p) { p.temperature = kNaN; }), "accepted");
  EXPECT_NE(message([](SamplingParams& p) { p.temperature = kInf; }), "accepted");
  EXPECT_EQ(message([](SamplingParams& p) { p.top_k = -1; }), "top_k is -1, expected 0 (all tokens) or more");
  EXPECT_EQ(message([](SamplingParams& p) { p.top_p = 1.5F; }), "top_p is 1.5, expected a number from 0 to 1");
  EXPECT_NE(message([](SamplingParams& p) { p.min_p = -0.1F; }), "accepted");
  EXPECT_NE(message([](SamplingParams& p) { p.presence_penalty = 2.5F; }), "accepted");
  EXPECT_NE(message([](SamplingParams& p) { p.frequency_penalty = -kInf; }), "accepted");
  EXPECT_NE(message([](SamplingParams& p) { p.repetition_penalty = 0.0F; }), "accepted");
  EXPECT_EQ(message([](SamplingParams& p) { p.logit_bias[100] = 1.0F; }),
            "logit_bias names token 100, expected an id from 0 to 99");
  EXPECT_NE(message([](SamplingParams& p) { p.logit_bias[3] = 101.0F; }), "accepted");
  EXPECT_THROW(Sampler(plain(), 100, 101), Error);
  EXPECT_THROW(Sampler(plain(), 100, -2), Error);
}

TEST(Sampler, DefaultsAreTheModelCards) {
  const SamplingParams thinking = SamplingParams::defaults(true), plain_answer = SamplingParams::defaults(false);
  EXPECT_EQ(thinking.temperature, 1.0F);
  EXPECT_EQ(thinking.top_p, 0.95F);
  EXPECT_EQ(plain_answer.temperature, 0.7F);
  EXPECT_EQ(plain_answer.top_p, 0.8F);
  for (const SamplingParams& params : {thinking, plain_answer}) {
    EXPECT_EQ(params.top_k, 20);
    EXPECT_EQ(params.min_p, 0.0F);
    EXPECT_EQ(params.presence_penalty, 1.5F);
  }
}

}  // namespace
}  // namespace lily
