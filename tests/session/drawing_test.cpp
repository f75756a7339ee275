// Tokens drawn on the device: the same as those that the host chooses from the same backend's logits, and a timeline
// that can go on in every way afterwards. On the emulated GPU, which needs a third of a second for a token: short
// texts.
#include <gtest/gtest.h>

#include <algorithm>

#include "checkpoint/checkpoint.h"
#include "device/device.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/gpu/gpu_ops.h"
#include "session/session.h"

namespace lily {
namespace {

constexpr std::int32_t kPrompt[] = {8167};
constexpr std::size_t kDrawn = 4;

std::int32_t best(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

std::vector<float> copy(std::span<const float> values) {
  return {values.begin(), values.end()};
}

class DrawingTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    checkpoint_ = std::make_unique<Checkpoint>(Checkpoint::open(resolve_model("demo")));
    device_ = make_device(DeviceKind::kEmulated);
    ops_ = make_gpu_ops(*device_, checkpoint_->config());
    model_ = std::make_unique<Model>(load_model(*checkpoint_, *ops_));
    Session session(*model_, *ops_, {.capacity = 32});
    session.sync(kPrompt);
    for (std::size_t i = 0; i <= kDrawn; ++i) {
      logits_.push_back(copy(session.logits()));
      tokens_.push_back(best(session.logits()));
      session.decode(tokens_.back());
    }
  }
  static void TearDownTestSuite() {
    model_.reset();
    ops_.reset();
    device_.reset();
    checkpoint_.reset();
    logits_.clear();
    tokens_.clear();
  }

  void SetUp() override {
    greedy_.temperature = 0;
    session_ = std::make_unique<Session>(*model_, *ops_, Session::Limits{.capacity = 32});
    session_->sync(kPrompt);
    ASSERT_TRUE(session_->can_draw());
  }
  void start(std::span<const std::int32_t> stops = {}) {
    session_->start_drawing({.token = tokens_[0],
                             .vocab = 8192,
                             .sampling = &greedy_,
                             .generated = std::span(tokens_).first(1),
                             .stops = stops,
                             .uniform = {}});
  }
  /// The prompt and the first `count` tokens of the reply.
  static std::vector<std::int32_t> timeline(std::size_t count) {
    std::vector<std::int32_t> all(std::begin(kPrompt), std::end(kPrompt));
    all.insert(all.end(), tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(count));
    return all;
  }
  void expect_at(std::size_t count) {
    EXPECT_FALSE(session_->drawing());
    EXPECT_EQ(std::vector(session_->tokens().begin(), session_->tokens().end()), timeline(count));
    EXPECT_EQ(copy(session_->logits()), logits_[count]);
  }

  static std::unique_ptr<Checkpoint> checkpoint_;
  static std::unique_ptr<Device> device_;
  static std::unique_ptr<Ops> ops_;
  static std::unique_ptr<Model> model_;
  static std::vector<std::vector<float>> logits_;  // [i]: after the prompt and i tokens of the reply
  static std::vector<std::int32_t> tokens_;        // of the reply, by the host

  SamplingParams greedy_;
  std::unique_ptr<Session> session_;
};

std::unique_ptr<Checkpoint> DrawingTest::checkpoint_;
std::unique_ptr<Device> DrawingTest::device_;
std::unique_ptr<Ops> DrawingTest::ops_;
std::unique_ptr<Model> DrawingTest::model_;
std::vector<std::vector<float>> DrawingTest::logits_;
std::vector<std::int32_t> DrawingTest::tokens_;

TEST_F(DrawingTest, DrawsWhatTheHostWouldChoose) {
  start();
  for (std::size_t i = 1; i < kDrawn; ++i) EXPECT_EQ(session_->draw(i + 1 < kDrawn), tokens_[i]) << i;
  session_->stop_drawing();
  expect_at(kDrawn - 1);
}

TEST_F(DrawingTest, RunningAheadPutsTheLastTokenIntoTheTimeline) {
  start();
  EXPECT_EQ(session_->draw(true), tokens_[1]);
  session_->stop_drawing();
  expect_at(2);
}

TEST_F(DrawingTest, AStopTokenEndsItThoughTheDeviceRanAhead) {
  const auto other = std::find_if(tokens_.begin() + 1, tokens_.end(), [](auto t) { return t != tokens_[1]; });
  ASSERT_NE(other, tokens_.end());  // else the stop would come at once
  const auto stops_at = static_cast<std::size_t>(other - tokens_.begin());
  start(std::span(&*other, 1));
  for (std::size_t i = 1; i <= stops_at; ++i) EXPECT_EQ(session_->draw(true), tokens_[i]) << i;
  expect_at(stops_at);
  session_->snapshot();
  session_->decode(tokens_[stops_at]);  // and it goes on as if the host had chosen
  EXPECT_EQ(copy(session_->logits()), logits_[stops_at + 1]);
}

TEST_F(DrawingTest, TheHostCanGoOn) {
  start();
  EXPECT_EQ(session_->draw(false), tokens_[1]);
  EXPECT_EQ(session_->leave_drawing(), tokens_[2]);
  expect_at(2);
  start();  // of the first token again: a timeline may repeat itself
  EXPECT_TRUE(session_->drawing());
}

TEST_F(DrawingTest, StoppingBeforeTheFirstTokenChangesNothing) {
  start();
  session_->stop_drawing();
  expect_at(0);
  session_->stop_drawing();
}

TEST_F(DrawingTest, AFullContextIsAnErrorAndNotACrash) {
  session_ = std::make_unique<Session>(*model_, *ops_, Session::Limits{.capacity = 2});
  session_->sync(kPrompt);
  start();
  EXPECT_EQ(session_->draw(true), tokens_[1]);
  EXPECT_THROW(session_->draw(true), Error);
  EXPECT_TRUE(session_->tokens().empty());
  session_->sync(kPrompt);
  expect_at(0);
}

TEST(Drawing, TheCpuLeavesItToTheHost) {
  const Checkpoint checkpoint = Checkpoint::open(resolve_model("demo"));
  const auto ops = make_cpu_ops(checkpoint.config(), {.threads = 1});
  const Model model = load_model(checkpoint, *ops);
  Session session(model, *ops, {.capacity = 8});
  EXPECT_FALSE(session.can_draw());
}

}  // namespace
}  // namespace lily
