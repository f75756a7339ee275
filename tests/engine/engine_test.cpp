// The engine on the demo model: concurrent requests give what they give alone, state is reused and says so, clients may
// leave.
#include "engine/engine.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "demo_copy.h"
#include "support/error.h"
#include "text/chat_format.h"

namespace lily {
namespace {

using namespace std::chrono_literals;

struct Answer {
  std::string text;
  std::vector<std::int32_t> tokens;
  std::vector<Sampled> prompt_logprobs;
  std::optional<Finished> finished;
  std::optional<Failed> failed;
};

Answer read_all(Stream& stream) {
  Answer answer;
  while (!answer.finished && !answer.failed) {
    auto event = stream.next(20s);
    if (!event) {
      ADD_FAILURE() << "the engine is silent";
      return answer;
    }
    if (auto* token = std::get_if<GeneratedToken>(&*event)) {
      answer.text += token->text;
      answer.tokens.push_back(token->sampled.token);
    } else if (auto* scores = std::get_if<PromptLogprobs>(&*event)) {
      answer.prompt_logprobs = scores->tokens;
    } else if (auto* finished = std::get_if<Finished>(&*event)) {
      answer.finished = *finished;
    } else if (auto* failed = std::get_if<Failed>(&*event)) {
      answer.failed = *failed;
    }
  }
  return answer;
}

class EngineTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { model_ = std::make_unique<LoadedModel>(LoadOptions{.threads = 2}); }
  static void TearDownTestSuite() { model_.reset(); }

  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() / ("lily_engine_test_" + std::to_string(::getpid()));
    std::filesystem::remove_all(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  static EngineOptions small() {
    EngineOptions options;
    options.session = {.capacity = 2048, .prefill_chunk = 64};
    return options;
  }

  static EngineRequest question(const std::string& text, std::int64_t max_tokens = 24) {
    const std::vector<ChatMessage> messages{ChatMessage::of(Role::kUser, text)};
    EngineRequest request;
    request.prompt = model_->tokenizer().encode(render_chat(messages, {}, {.enable_thinking = false}).pieces);
    request.generation = {.sampling = {.temperature = 0}, .max_tokens = max_tokens};
    return request;
  }

  static Answer ask(Engine& engine, EngineRequest request) {
    const auto stream = engine.submit(std::move(request));
    return read_all(*stream);
  }

  static std::unique_ptr<LoadedModel> model_;
  std::filesystem::path directory_;
};

std::unique_ptr<LoadedModel> EngineTest::model_;

TEST_F(EngineTest, ParallelRequestsGiveTheSameTextAsSerialOnes) {
  const std::vector<std::string> questions{"Who are you?",        "Why do we need rain?",
                                           "What is a computer?", "Tell me a story about a brave fox.",
                                           "Is honey healthy?",   "I feel nervous today."};
  std::vector<std::string> serial;
  {
    EngineOptions options = small();
    options.parallel = 1;
    Engine engine(*model_, options);
    for (const auto& text : questions) serial.push_back(ask(engine, question(text)).text);
  }
  Engine engine(*model_, small());
  std::vector<std::unique_ptr<Stream>> streams;
  for (const auto& text : questions) streams.push_back(engine.submit(question(text)));
  for (std::size_t i = 0; i < questions.size(); ++i) EXPECT_EQ(read_all(*streams[i]).text, serial[i]) << questions[i];
}

TEST_F(EngineTest, SameQuestionAgainIsNotComputedAgain) {
  Engine engine(*model_, small());
  const Answer first = ask(engine, question("Why do we need rain?"));
  ASSERT_TRUE(first.finished);
  EXPECT_EQ(first.finished->cache.cached_tokens, 0);
  const Answer second = ask(engine, question("Why do we need rain?"));
  EXPECT_EQ(second.finished->cache.cached_tokens, second.finished->prompt_tokens);
  EXPECT_EQ(second.text, first.text);
}

TEST_F(EngineTest, InterleavedConversationsBothReuse) {
  EngineOptions options = small();
  options.parallel = 1;  // one live session, so the memory tier must do it
  Engine engine(*model_, options);
  auto a = question("My name is Anna. I like red apples.");
  auto b = question("My name is Otto. I have a dog.");
  const Answer first_a = ask(engine, a);
  ask(engine, b);
  a.prompt.insert(a.prompt.end(), first_a.tokens.begin(), first_a.tokens.end() - 1);
  const Answer second_a = ask(engine, a);
  EXPECT_EQ(second_a.finished->cache.source, CacheUse::Source::kMemory);
  EXPECT_EQ(second_a.finished->cache.cached_tokens, static_cast<std::int64_t>(a.prompt.size()));
}

TEST_F(EngineTest, SaysWhereAPromptDiffers) {
  Engine engine(*model_, small());
  auto request = question("What is a computer?");
  const auto shared = static_cast<std::int64_t>(request.prompt.size()) - 4;
  request.snapshots = {shared};
  ask(engine, request);
  auto changed = request;
  const std::int32_t before = changed.prompt[static_cast<std::size_t>(shared) + 1];
  changed.prompt[static_cast<std::size_t>(shared) + 1] = 7;
  const CacheUse use = ask(engine, changed).finished->cache;
  EXPECT_EQ(use.cached_tokens, shared);
  EXPECT_EQ(use.common_tokens, shared + 1);
  EXPECT_EQ(use.known_token, before);
  EXPECT_EQ(use.prompt_token, 7);
}

TEST_F(EngineTest, SaysWhereAPromptLeavesACancelledReply) {
  Engine engine(*model_, small());
  auto request = question("What is a computer?", 1500);
  request.generation.ignore_eos = true;
  std::vector<std::int32_t> said;
  {
    const auto stream = engine.submit(request);
    while (said.size() < 7) {
      const auto event = stream->next(20s);
      ASSERT_TRUE(event);
      if (const auto* token = std::get_if<GeneratedToken>(&*event)) said.push_back(token->sampled.token);
    }
  }
  auto edited = request;
  edited.generation.max_tokens = 4;
  edited.prompt.insert(edited.prompt.end(), said.begin(), said.begin() + 5);
  edited.prompt.push_back(said[5] == 7 ? 8 : 7);
  const CacheUse use = ask(engine, edited).finished->cache;
  EXPECT_EQ(use.cached_tokens, static_cast<std::int64_t>(request.prompt.size()));
  EXPECT_EQ(use.common_tokens, use.cached_tokens + 5);
  EXPECT_EQ(use.known_token, said[5]);
  EXPECT_EQ(use.prompt_token, edited.prompt.back());
}

TEST_F(EngineTest, WhatComesFromDiskIsNotComparedWithWhatIsInMemory) {
  EngineOptions options = small();
  options.cache_directory = directory_;
  const auto request = question("Tell me about the sea.");
  { ask(*std::make_unique<Engine>(*model_, options), request); }
  Engine engine(*model_, options);
  ask(engine, question("Tell me about the moon."));
  const CacheUse use = ask(engine, request).finished->cache;
  EXPECT_EQ(use.source, CacheUse::Source::kDisk);
  EXPECT_EQ(use.common_tokens, static_cast<std::int64_t>(request.prompt.size()));
  EXPECT_FALSE(use.prompt_token);
}

TEST_F(EngineTest, TellsWhereAPromptLeavesWhatIsOnDisk) {
  EngineOptions options = small();
  options.cache_directory = directory_;
  const auto sea = question("Tell me about the sea.");
  const auto moon = question("Tell me about the moon.");
  { ask(*std::make_unique<Engine>(*model_, options), sea); }
  Engine engine(*model_, options);
  const CacheUse use = ask(engine, moon).finished->cache;
  const auto common = std::ranges::mismatch(sea.prompt, moon.prompt).in1 - sea.prompt.begin();
  EXPECT_EQ(use.common_tokens, common);
  EXPECT_EQ(use.known_token, sea.prompt[static_cast<std::size_t>(common)]);
  EXPECT_EQ(use.prompt_token, moon.prompt[static_cast<std::size_t>(common)]);
}

TEST_F(EngineTest, RefusesWhatWouldNotFitTheMemoryAndLivesOn) {
  EngineOptions options = small();
  std::atomic<std::uint64_t> available = std::uint64_t{1} << 40;
  options.available_memory = [&] { return available.load(); };
  Engine engine(*model_, options);
  const auto kept = question("What is a computer?");
  ASSERT_TRUE(ask(engine, kept).finished);
  EXPECT_GT(engine.stats().cache_bytes, 0U);
  available = 1000;
  auto longer = question("Tell me about the sea.");
  longer.prompt.resize(1000, 7);
  const Answer refused = ask(engine, longer);
  ASSERT_TRUE(refused.failed);
  EXPECT_NE(refused.failed->message.find("memory"), std::string::npos);
  available = std::uint64_t{1} << 40;
  EXPECT_TRUE(ask(engine, longer).finished);
  EXPECT_TRUE(ask(engine, kept).finished);
}

TEST_F(EngineTest, StatsMoveWithEveryTokenAndChunk) {
  EngineOptions options = small();
  options.session.capacity = 65536;
  Engine engine(*model_, options);
  auto request = question("Count.", 60000);
  request.generation.ignore_eos = true;
  const auto stream = engine.submit(request);
  const auto until = [&](auto holds) {
    for (int i = 0; i < 2000 && !holds(engine.stats()); ++i) std::this_thread::sleep_for(5ms);
    return holds(engine.stats());
  };
  EXPECT_TRUE(until([](const EngineStats& stats) { return stats.generated_tokens >= 3; }));
  const std::uint64_t before = engine.stats().prompt_tokens;
  EXPECT_GE(before, request.prompt.size());
  auto longer = question("Count.");
  longer.prompt.resize(40000, 7);
  const auto second = engine.submit(longer);
  EXPECT_TRUE(until([&](const EngineStats& stats) { return stats.prompt_tokens > before; }));
  EXPECT_EQ(engine.stats().requests, 0U);  // neither has ended
  EXPECT_LT(engine.stats().prompt_tokens, before + longer.prompt.size());
}

TEST_F(EngineTest, DiskTierSurvivesARestartAndDamage) {
  EngineOptions options = small();
  options.cache_directory = directory_;
  std::string text;
  {
    Engine engine(*model_, options);
    text = ask(engine, question("Why do we need rain?")).text;
  }
  {
    Engine engine(*model_, options);
    const Answer again = ask(engine, question("Why do we need rain?"));
    EXPECT_EQ(again.finished->cache.source, CacheUse::Source::kDisk);
    EXPECT_EQ(again.text, text);
  }
  int files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_)) {
    if (!entry.is_regular_file()) continue;
    std::filesystem::resize_file(entry.path(), entry.file_size() - 1);
    ++files;
  }
  EXPECT_GT(files, 0);
  Engine engine(*model_, options);
  const Answer cold = ask(engine, question("Why do we need rain?"));
  EXPECT_EQ(cold.finished->cache.cached_tokens, 0);
  EXPECT_EQ(cold.text, text);
}

TEST_F(EngineTest, DiskTierStaysInItsBudget) {
  EngineOptions options = small();
  options.cache_directory = directory_;
  options.cache_disk_bytes = 12 << 20;
  Engine engine(*model_, options);
  for (int i = 0; i < 12; ++i) ask(engine, question("Tell me about number " + std::to_string(i), 2));
  EXPECT_LE(engine.stats().cache_disk_bytes, options.cache_disk_bytes);
}

TEST_F(EngineTest, VerifyCacheAcceptsItsOwnHits) {
  EngineOptions options = small();
  options.verify_cache = true;
  Engine engine(*model_, options);
  ask(engine, question("Why do we need rain?"));
  const Answer again = ask(engine, question("Why do we need rain?"));
  EXPECT_FALSE(again.failed) << again.failed->message;
  EXPECT_GT(again.finished->cache.cached_tokens, 0);
}

// With weights that differ in one bit, where their hash does not look: kept states are off by less than a greedy choice
// would show.
TEST_F(EngineTest, VerifyCacheFindsTheSmallestDifference) {
  const DemoCopy copy("lily_engine_test_model");
  const std::string tensor = "language_model.model.layers.0.linear_attn.in_proj_qkv.weight";
  copy.flip(tensor, copy.size(tensor) / 14);
  LoadedModel other({.model = copy.directory().string(), .threads = 2});
  ASSERT_EQ(other.id(), model_->id());
  EngineOptions options = small();
  options.cache_directory = directory_;
  {
    Engine engine(*model_, options);
    ask(engine, question("Why do we need rain?"));
  }
  options.verify_cache = true;
  Engine engine(other, options);
  const Answer answer = ask(engine, question("Why do we need rain?"));
  ASSERT_TRUE(answer.failed);
  EXPECT_NE(answer.failed->message.find("logits differ from a cold run"), std::string::npos) << answer.failed->message;
}

TEST_F(EngineTest, CancelledRequestsEndAtOnce) {
  Engine engine(*model_, small());
  auto endless = question("Tell me a story.", 0);
  endless.generation.ignore_eos = true;
  const auto stream = engine.submit(endless);
  while (!std::holds_alternative<GeneratedToken>(*stream->next(20s))) {
  }
  stream->cancel();
  const Answer rest = read_all(*stream);
  ASSERT_TRUE(rest.finished);
  EXPECT_EQ(rest.finished->reason, FinishReason::kCancelled);
  EXPECT_LT(rest.finished->generated_tokens, 100);
  { const auto dropped = engine.submit(endless); }  // the client goes away without a word
  EXPECT_TRUE(ask(engine, question("Who are you?")).finished);
  EXPECT_EQ(engine.stats().cancelled, 2U);
}

TEST_F(EngineTest, QueueIsBounded) {
  EngineOptions options = small();
  options.parallel = 1;
  options.queue = 1;
  Engine engine(*model_, options);
  auto endless = question("Tell me a story.", 0);
  endless.generation.ignore_eos = true;
  const auto running = engine.submit(endless);
  while (!std::holds_alternative<GeneratedToken>(*running->next(20s))) {
  }
  const auto waiting = engine.submit(question("Who are you?"));
  EXPECT_THROW(engine.submit(question("Who are you?")), QueueFull);
  running->cancel();
  EXPECT_TRUE(read_all(*waiting).finished);
}

TEST_F(EngineTest, ShortRequestPassesALongPrefill) {
  Engine engine(*model_, small());
  EngineRequest long_one = question("Who are you?", 1);
  const std::vector<std::int32_t> filler(1900, 100);
  long_one.prompt.insert(long_one.prompt.begin(), filler.begin(), filler.end());
  const auto slow = engine.submit(long_one);
  ASSERT_TRUE(slow->next(20s)) << "the first chunk is done";
  const Answer quick = ask(engine, question("Who are you?", 4));
  EXPECT_TRUE(quick.finished);
  std::int64_t done = 0;
  for (auto event = slow->next(0ms); event; event = slow->next(0ms)) {
    if (const auto* progress = std::get_if<PrefillProgress>(&*event)) done = progress->done;
  }
  EXPECT_LT(done, 1900) << "the long prefill was still going on";
}

TEST_F(EngineTest, ScoresThePromptsTokens) {
  Engine engine(*model_, small());
  auto request = question("What is a computer?", 1);
  request.score_prompt = true;
  request.generation.top_logprobs = 2;
  const Answer answer = ask(engine, request);
  ASSERT_EQ(answer.prompt_logprobs.size(), request.prompt.size() - 1);
  for (std::size_t i = 0; i < answer.prompt_logprobs.size(); ++i) {
    const Sampled& score = answer.prompt_logprobs[i];
    EXPECT_EQ(score.token, request.prompt[i + 1]);
    EXPECT_LE(score.logprob, 0.0F);
    ASSERT_EQ(score.top.size(), 2U);
    EXPECT_GE(score.top[0].logprob, score.logprob);
  }
}

TEST_F(EngineTest, ThinkingBudgetClosesTheThinking) {
  Engine engine(*model_, small());
  const std::vector<ChatMessage> messages{ChatMessage::of(Role::kUser, "Tell me a story about Anna.")};
  EngineRequest request;
  request.prompt = model_->tokenizer().encode(render_chat(messages, {}, {.enable_thinking = true}).pieces);
  request.generation = {.sampling = {.temperature = 0}, .max_tokens = 12, .in_thinking = true, .thinking_budget = 3};
  const Answer answer = ask(engine, request);
  ASSERT_GE(answer.tokens.size(), 4U);
  EXPECT_EQ(answer.tokens[3], model_->tokenizer().added_token("</think>"));
}

TEST_F(EngineTest, RefusesImpossibleRequestsAtOnce) {
  Engine engine(*model_, small());
  EXPECT_THROW(engine.submit({}), Error);
  EngineRequest too_long;
  too_long.prompt.assign(2049, 100);
  EXPECT_THROW(engine.submit(too_long), Error);
  auto bad_sampling = question("Who are you?");
  bad_sampling.generation.sampling.top_p = -1;
  EXPECT_THROW(engine.submit(bad_sampling), Error);
  EngineRequest foreign;
  foreign.prompt = {1, 2, 1 << 30};
  EXPECT_THROW(engine.submit(foreign), Error);
  EXPECT_TRUE(ask(engine, question("Who are you?")).finished) << "the engine lives on";
}

}  // namespace
}  // namespace lily
