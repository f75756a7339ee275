// From a ChatRequest to its reply, event by event: render, encode, recall what was sampled, submit, parse. Knows
// nothing of HTTP or of any API's JSON. Thread-safe; each ChatReply belongs to the thread that reads it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "engine/engine.h"
#include "server/chat_request.h"
#include "server/replay_memory.h"
#include "text/reply_parser.h"

namespace lily {

/// A step of the reply. Events and the token they came with are together, for log-probabilities.
struct ReplyStep {
  std::vector<ReplyEvent> events;
  std::optional<Sampled> token;  // the token of this step; none for progress and the end
  bool is_end = false;           // the token ended the reply and is no part of it
  bool in_reasoning = false;     // the token belongs to the thinking
  std::optional<PrefillProgress> progress;
  std::optional<Finished> finished;  // the last step has this
};

class GrammarCompiler;

class ChatReply {
 public:
  /// The next step, or nothing after `timeout`. Throws Error when the engine failed.
  std::optional<ReplyStep> next(std::chrono::milliseconds timeout);
  void cancel() { stream_->cancel(); }

  std::int64_t prompt_tokens() const { return prompt_tokens_; }
  /// The message so far; whole after the last step.
  const ChatMessage& message() const { return message_; }
  /// Calls that were cut by the end of the reply do not count.
  bool has_tool_calls() const { return !message_.tool_calls.empty(); }

 private:
  friend class ChatService;
  ChatReply(ChatRequest request, std::unique_ptr<Stream> stream, ReplayMemory& memory, std::int64_t prompt_tokens);
  void take(std::vector<ReplyEvent> events, ReplyStep& step);
  void remember(const Finished& finished);

  ChatRequest request_;  // the parser refers to its tools
  std::unique_ptr<Stream> stream_;
  ReplayMemory& memory_;
  ReplyParser parser_;
  ChatMessage message_;
  std::int64_t prompt_tokens_;
};

class ChatService {
 public:
  ChatService(LoadedModel& model, Engine& engine, std::size_t replay_bytes);
  ~ChatService();

  /// Throws Error for what cannot be served, QueueFull when too many requests wait.
  std::unique_ptr<ChatReply> reply(ChatRequest request);
  /// The prompt's tokens, as reply() would compute them.
  std::vector<std::int32_t> prompt(ChatRequest request);

  const LoadedModel& model() const { return model_; }
  Engine& engine() const { return engine_; }

 private:
  struct Prompt {
    std::vector<std::int32_t> tokens;
    std::vector<std::int64_t> snapshots;
  };
  Prompt encode(ChatRequest& request);

  LoadedModel& model_;
  Engine& engine_;
  ReplayMemory memory_;
  std::unique_ptr<GrammarCompiler> grammar_;
};

}  // namespace lily
