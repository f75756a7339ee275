// The demo model on this build against MLX-LM with the same 4-bit weights in float32 (models/demo-goldens, made by
// tools/goldens/make_goldens.py): logits of given text, greedy continuations, and independence of how a text is cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/loaded_model.h"
#include "eval/evaluation.h"
#include "session/session.h"

namespace lily {
namespace {

const Goldens& goldens() {
  static const Goldens kGoldens =
      read_goldens(std::string(LILY_SOURCE_DIR) + "/models/demo-goldens/goldens.safetensors",
                   read_config(std::string(LILY_SOURCE_DIR) + "/models/demo"));
  return kGoldens;
}

std::int32_t most_likely(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

float largest_difference(std::span<const float> a, std::span<const float> b) {
  float worst = 0.0F;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    if (!(difference <= worst)) worst = difference;  // NaN too
  }
  return worst;
}

class Parity : public testing::Test {
 protected:
  static LoadedModel& exact() {
    static LoadedModel model = [] {
      LoadOptions options;
      options.activations = "float32";
      return LoadedModel(options);
    }();
    return model;
  }
};

// What `lily eval` promises, with the options that a user gets by default. MLX-LM's own run is the yardstick.
TEST_F(Parity, DefaultsAreWithinTheStatedBounds) {
  LoadedModel model{LoadOptions{}};
  const GoldenScores scores = score_goldens(model.model(), model.ops(), goldens());
  EXPECT_GE(scores.lily.positions, 2000);
  EXPECT_GE(scores.lily.top1_agreement(), 0.98);
  EXPECT_GE(scores.lily.top1_agreement(), scores.native.top1_agreement());
  EXPECT_NEAR(scores.lily.perplexity_ratio(), 1.0, 0.001);
}

TEST_F(Parity, ExactArithmeticEqualsMlxInFloat32) {
  const GoldenScores scores = score_goldens(exact().model(), exact().ops(), goldens(), 700);
  EXPECT_EQ(scores.lily.positions, 700);
  EXPECT_EQ(scores.lily.agreements, 700);
  EXPECT_NEAR(scores.lily.perplexity_ratio(), 1.0, 1e-5);
  EXPECT_LT(scores.lily.max_logit_error, 1e-3);
}

TEST_F(Parity, ContinuesGreedilyAsMlxInFloat32) {
  ASSERT_GE(goldens().continuations.size(), 3U);
  for (const GoldenContinuation& golden : goldens().continuations) {
    Session session(exact().model(), exact().ops(), {.capacity = 256});
    session.sync(golden.prompt);
    for (std::size_t i = 0; i < golden.tokens.size(); ++i) {
      ASSERT_GT(golden.margins[i], 1e-3F) << "too close to compare: choose another prompt";
      ASSERT_EQ(most_likely(session.logits()), golden.tokens[i]) << "token " << i;
      session.decode(golden.tokens[i]);
    }
  }
}

// Chunks around the powers of two that kernels like, and those that leave a rest of one.
TEST_F(Parity, ChunksDoNotChangeTheLogits) {
  const auto longest = std::max_element(goldens().sequences.begin(), goldens().sequences.end(),
                                        [](const auto& a, const auto& b) { return a.size() < b.size(); });
  const auto tokens = std::span(*longest).first(std::min<std::size_t>(longest->size(), 200));
  Session session(exact().model(), exact().ops(), {.capacity = 256});
  std::vector<std::vector<float>> whole;
  session.begin(tokens);
  session.advance(256, [&](std::int64_t, std::span<const float> row) { whole.emplace_back(row.begin(), row.end()); });
  ASSERT_EQ(whole.size(), tokens.size());
  for (const std::int64_t rows : {1, 2, 3, 7, 16, 63, 64, 65, 199}) {
    session.reset();
    session.begin(tokens);
    float worst = 0.0F;
    while (session.pending() > 0) {
      session.advance(rows, [&](std::int64_t at, std::span<const float> row) {
        worst = std::max(worst, largest_difference(row, whole[static_cast<std::size_t>(at)]));
      });
    }
    EXPECT_LT(worst, 1e-3F) << rows << " rows at a time";
  }
}

TEST_F(Parity, PrefillEqualsDecoding) {
  const auto tokens = std::span(goldens().sequences.front());
  Session prefilled(exact().model(), exact().ops(), {.capacity = 1024});
  Session decoded(exact().model(), exact().ops(), {.capacity = 1024});
  decoded.sync(tokens.first(1));
  for (std::size_t length = 2; length <= std::min<std::size_t>(tokens.size(), 48); ++length) {
    decoded.decode(tokens[length - 1]);
    prefilled.reset();
    prefilled.sync(tokens.first(length));
    EXPECT_LT(largest_difference(decoded.logits(), prefilled.logits()), 1e-3F) << length << " tokens";
  }
}

}  // namespace
}  // namespace lily
