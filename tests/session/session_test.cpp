// The session's promises, on the demo model: any chunking gives the same answer, going back and coming from a file
// changes nothing, and two sessions never mix.
#include "session/session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>

#include "checkpoint/checkpoint.h"
#include "ops/cpu/cpu_ops.h"
#include "support/error.h"

namespace lily {
namespace {

class SessionTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    checkpoint_ = std::make_unique<Checkpoint>(Checkpoint::open(resolve_model("demo")));
    ops_ = make_cpu_ops(checkpoint_->config(), {.threads = 2});
    model_ = std::make_unique<Model>(load_model(*checkpoint_, *ops_));
  }
  static void TearDownTestSuite() {
    model_.reset();
    ops_.reset();
    checkpoint_.reset();
  }

  static std::unique_ptr<Session> session(const Session::Limits& limits = {}) {
    return std::make_unique<Session>(*model_, *ops_, limits);
  }

  /// Ids without meaning, but the model must handle them all the same.
  static std::vector<std::int32_t> tokens(std::int64_t count, int seed) {
    std::vector<std::int32_t> result;
    auto state = static_cast<std::uint32_t>(seed);
    for (std::int64_t i = 0; i < count; ++i) {
      state = state * 1664525U + 1013904223U;
      result.push_back(static_cast<std::int32_t>((state >> 8) % 8000U));
    }
    return result;
  }

  static std::vector<float> logits(const Session& session) {
    return {session.logits().begin(), session.logits().end()};
  }

  /// On the CPU a row gets the same bits in any batch (cpu_batch_test), so the whole model does.
  static void expect_same(std::span<const float> a, std::span<const float> b) {
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end()));
    EXPECT_TRUE(std::all_of(a.begin(), a.end(), [](float v) { return std::isfinite(v); }));
  }

  static std::unique_ptr<Checkpoint> checkpoint_;
  static std::unique_ptr<Ops> ops_;
  static std::unique_ptr<Model> model_;
};

std::unique_ptr<Checkpoint> SessionTest::checkpoint_;
std::unique_ptr<Ops> SessionTest::ops_;
std::unique_ptr<Model> SessionTest::model_;

TEST_F(SessionTest, AnyChunkingEqualsDecoding) {
  const auto prompt = tokens(70, 1);
  auto decoded = session();
  decoded->sync(std::span(prompt).first(1));
  for (std::size_t i = 1; i < prompt.size(); ++i) decoded->decode(prompt[i]);
  for (const std::int64_t chunk : {1, 2, 7, 33, 64, 70, 500}) {
    SCOPED_TRACE(chunk);
    auto prefilled = session({.prefill_chunk = chunk});
    const SyncResult result = prefilled->sync(prompt);
    EXPECT_EQ(result.reused, 0);
    EXPECT_EQ(result.computed, 70);
    expect_same(prefilled->logits(), decoded->logits());
  }
}

TEST_F(SessionTest, SyncReusesThePrefixAndExtends) {
  auto prompt = tokens(50, 2);
  auto live = session();
  live->sync(prompt);
  const auto more = tokens(20, 3);
  prompt.insert(prompt.end(), more.begin(), more.end());
  const SyncResult result = live->sync(prompt);
  EXPECT_EQ(result.reused, 50);
  EXPECT_EQ(result.computed, 20);
  auto cold = session();
  cold->sync(prompt);
  expect_same(live->logits(), cold->logits());
}

TEST_F(SessionTest, SyncWithTheSameTokensComputesNothing) {
  const auto prompt = tokens(40, 4);
  auto live = session();
  live->sync(prompt);
  const auto before = logits(*live);
  EXPECT_EQ(live->sync(prompt).computed, 0);
  EXPECT_EQ(logits(*live), before);
}

TEST_F(SessionTest, ChangedTailGoesBackToTheNearestSnapshot) {
  auto prompt = tokens(60, 5);
  auto live = session();
  live->sync(prompt, {.snapshots = {20, 45}});
  EXPECT_EQ(live->snapshot_positions(), (std::vector<std::int64_t>{20, 45, 60}));
  prompt[50] += 1;
  const SyncResult result = live->sync(prompt);
  EXPECT_EQ(result.reused, 45);
  EXPECT_EQ(result.computed, 15);
  auto cold = session({.prefill_chunk = 512});
  cold->sync(prompt, {.snapshots = {20, 45}});
  EXPECT_EQ(logits(*live), logits(*cold));
}

TEST_F(SessionTest, ShorterPromptWithoutSnapshotIsRebuilt) {
  const auto prompt = tokens(60, 6);
  auto live = session({.snapshot_bytes = 0});
  live->sync(prompt);
  EXPECT_TRUE(live->snapshot_positions().empty());
  const SyncResult result = live->sync(std::span(prompt).first(30));
  EXPECT_EQ(result.reused, 0);
  EXPECT_EQ(result.computed, 30);
  auto cold = session();
  cold->sync(std::span(prompt).first(30));
  EXPECT_EQ(logits(*live), logits(*cold));
}

TEST_F(SessionTest, RegularSnapshotsInLongPrompts) {
  auto live = session({.prefill_chunk = 48, .snapshot_interval = 64});
  live->sync(tokens(200, 7));
  EXPECT_EQ(live->snapshot_positions(), (std::vector<std::int64_t>{64, 128, 192, 200}));
}

TEST_F(SessionTest, SnapshotBudgetDropsTheLongestUnused) {
  auto probe = session();
  probe->sync(tokens(5, 8));
  const auto prompt = tokens(60, 8);
  const std::size_t each =
      ops_->new_state(8)->recurrent_bytes() + 4 * static_cast<std::size_t>(model_->config.vocab_size);
  auto live = session({.snapshot_bytes = 2 * each});
  live->sync(prompt, {.snapshots = {10, 20, 30}});
  EXPECT_EQ(live->snapshot_positions(), (std::vector<std::int64_t>{30, 60}));
}

TEST_F(SessionTest, RewindContinuesBitIdentically) {
  const auto prompt = tokens(30, 9);
  const auto reply = tokens(10, 10);
  auto live = session();
  live->sync(prompt);
  for (const auto token : reply) live->decode(token);
  const auto first = logits(*live);
  const SyncResult result = live->rewind(30);
  EXPECT_EQ(result.computed, 0);
  for (const auto token : reply) live->decode(token);
  EXPECT_EQ(logits(*live), first);
  EXPECT_THROW(live->rewind(41), Error);
  live->rewind(0);
  EXPECT_TRUE(live->tokens().empty());
}

TEST_F(SessionTest, InterleavedSessionsNeverMix) {
  const auto a = tokens(40, 11);
  const auto b = tokens(40, 12);
  auto alone_a = session();
  auto alone_b = session();
  alone_a->sync(std::span(a).first(20));
  for (std::size_t i = 20; i < 40; ++i) alone_a->decode(a[i]);
  alone_b->sync(std::span(b).first(20));
  for (std::size_t i = 20; i < 40; ++i) alone_b->decode(b[i]);

  auto mixed_a = session();
  auto mixed_b = session();
  mixed_a->sync(std::span(a).first(20));
  mixed_b->sync(std::span(b).first(20));
  for (std::size_t i = 20; i < 40; ++i) {
    mixed_b->decode(b[i]);
    mixed_a->decode(a[i]);
  }
  EXPECT_EQ(logits(*mixed_a), logits(*alone_a));
  EXPECT_EQ(logits(*mixed_b), logits(*alone_b));
}

TEST_F(SessionTest, BatchedDecodeEqualsSerial) {
  std::vector<std::unique_ptr<Session>> serial;
  std::vector<std::unique_ptr<Session>> batched;
  std::vector<Session*> batch;
  for (int i = 0; i < 4; ++i) {
    for (auto* group : {&serial, &batched}) {
      group->push_back(session());
      group->back()->sync(tokens(10 + 7 * i, 20 + i));
    }
    batch.push_back(batched.back().get());
  }
  for (int step = 0; step < 8; ++step) {
    const auto next = tokens(4, 30 + step);
    for (std::size_t i = 0; i < 4; ++i) serial[i]->decode(next[i]);
    Session::decode(batch, next);
  }
  for (std::size_t i = 0; i < 4; ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(serial[i]->tokens().size(), batched[i]->tokens().size());
    expect_same(serial[i]->logits(), batched[i]->logits());
  }
}

TEST_F(SessionTest, CancelKeepsWhatWasDoneAndGoesOn) {
  const auto prompt = tokens(100, 13);
  auto live = session({.prefill_chunk = 16});
  const SyncResult cut = live->sync(prompt, {.progress = [](std::int64_t done, std::int64_t) { return done < 40; }});
  EXPECT_TRUE(cut.cancelled);
  EXPECT_EQ(live->tokens().size(), 48U);
  const SyncResult rest = live->sync(prompt);
  EXPECT_EQ(rest.reused, 48);
  auto cold = session({.prefill_chunk = 16});
  cold->sync(prompt);
  EXPECT_EQ(logits(*live), logits(*cold));
}

TEST_F(SessionTest, RefusesWhatDoesNotFit) {
  auto live = session({.capacity = 8});
  EXPECT_THROW(live->sync(tokens(9, 14)), Error);
  EXPECT_THROW(live->sync({}), Error);
  EXPECT_THROW(live->sync(std::vector<std::int32_t>{1, 8192}), Error);
  EXPECT_THROW(live->sync(std::vector<std::int32_t>{-1}), Error);
  live->sync(tokens(8, 14));
  EXPECT_THROW(live->decode(1), Error);
  EXPECT_EQ(live->tokens().size(), 8U);
}

class SessionFileTest : public SessionTest {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() / ("lily_session_test_" + std::to_string(::getpid()));
    std::filesystem::create_directories(directory_);
    file_ = directory_ / "chat.session";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::filesystem::path directory_;
  std::filesystem::path file_;
};

TEST_F(SessionFileTest, LoadedSessionContinuesBitIdentically) {
  const auto prompt = tokens(300, 15);
  auto saved = session();
  saved->sync(prompt, {.snapshots = {100}});
  for (const auto token : tokens(5, 16)) saved->decode(token);
  saved->save(file_, 42);
  auto loaded = session();
  loaded->sync(tokens(33, 17));
  loaded->load(file_, 42);
  EXPECT_TRUE(std::ranges::equal(loaded->tokens(), saved->tokens()));
  EXPECT_EQ(loaded->snapshot_positions(), saved->snapshot_positions());
  EXPECT_EQ(logits(*loaded), logits(*saved));
  for (const auto token : tokens(10, 18)) {
    saved->decode(token);
    loaded->decode(token);
    ASSERT_EQ(logits(*loaded), logits(*saved));
  }
  loaded->rewind(100);
  saved->rewind(100);
  EXPECT_EQ(logits(*loaded), logits(*saved));
}

TEST_F(SessionFileTest, DamagedFilesAreRefusedAndChangeNothing) {
  auto saved = session();
  saved->sync(tokens(40, 19));
  saved->save(file_, 42);
  std::ifstream in(file_, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  auto live = session();
  live->sync(tokens(12, 20));
  const auto before = logits(*live);

  const auto expect_refused = [&](const std::string& bytes, const char* what) {
    SCOPED_TRACE(what);
    std::ofstream(file_, std::ios::binary | std::ios::trunc) << bytes;
    EXPECT_THROW(live->load(file_, 42), Error);
    EXPECT_EQ(live->tokens().size(), 12U);
    EXPECT_EQ(logits(*live), before);
  };
  expect_refused("", "empty");
  expect_refused(whole.substr(0, whole.size() - 1), "cut by one byte");
  expect_refused(whole.substr(0, 100), "cut short");
  for (const std::size_t at : {std::size_t{0}, std::size_t{9}, std::size_t{40}, whole.size() / 2, whole.size() - 1}) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 1);
    expect_refused(flipped, "one bit flipped");
  }
  std::ofstream(file_, std::ios::binary | std::ios::trunc) << whole;
  EXPECT_THROW(live->load(file_, 43), Error) << "another checkpoint";
  EXPECT_THROW(session({.capacity = 20})->load(file_, 42), Error) << "too long for the context";
  EXPECT_THROW(live->load(directory_ / "missing", 42), Error);
  live->load(file_, 42);
  EXPECT_EQ(logits(*live), logits(*saved));
}

TEST_F(SessionFileTest, FailedSaveKeepsTheOldFile) {
  auto live = session();
  EXPECT_THROW(live->save(file_, 1), Error) << "an empty session";
  live->sync(tokens(5, 21));
  EXPECT_THROW(live->save(directory_ / "no such directory" / "file", 1), Error);
  live->save(file_, 1);
  EXPECT_FALSE(std::filesystem::exists(file_.string() + ".tmp"));
}

}  // namespace
}  // namespace lily
