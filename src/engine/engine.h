// The engine: one thread owns the model and all sessions; requests come in through submit(), events go out through each
// request's Stream. It keeps the queue bounded, interleaves prefills by chunk, decodes all running replies in one
// batch, and reuses state: live sessions first, then the prefix cache in memory, then the one on disk.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/generation.h"
#include "engine/loaded_model.h"
#include "session/session.h"
#include "support/error.h"

namespace lily {

struct EngineOptions {
  Session::Limits session;
  int parallel = 4;                                // replies in the making at the same time
  int queue = 64;                                  // requests that may wait beyond those
  std::size_t cache_bytes = std::size_t{4} << 30;  // prefix cache in memory
  std::filesystem::path cache_directory;           // second tier; empty: none
  std::size_t cache_disk_bytes = std::size_t{20} << 30;
  bool verify_cache = false;  // recompute each prefix that was reused and compare; slow, for diagnosis
  /// Bytes that this process can still get, asked before a request gets a session; empty: what the system says, on the
  /// CPU (GPUs give all memory of a session when it is made).
  std::function<std::uint64_t()> available_memory = {};
};

struct EngineRequest {
  std::vector<std::int32_t> prompt;
  /// Prefix lengths where other requests will likely fork: end of system and tools, start of the last user turn.
  std::vector<std::int64_t> snapshots;
  GenerationOptions generation;
  /// Also log-probabilities of the prompt's own tokens (top_logprobs of `generation`); nothing is reused then.
  bool score_prompt = false;
};

/// Where the prompt's state came from, and why not more of it.
struct CacheUse {
  enum class Source { kNone, kLive, kMemory, kDisk };
  Source source = Source::kNone;
  std::int64_t cached_tokens = 0;  // of the prompt, not computed again
  std::int64_t common_tokens =
      0;  // longest prefix shared with anything known; above cached_tokens where no snapshot was
  std::optional<std::int32_t> known_token;   // at common_tokens: what the nearest known timeline has there,
  std::optional<std::int32_t> prompt_token;  // and what this prompt has
};

struct PrefillProgress {
  std::int64_t done = 0;
  std::int64_t total = 0;
};

/// Log-probability of prompt[i] given what is before it; the first one has none.
struct PromptLogprobs {
  std::vector<Sampled> tokens;
};

struct Finished {
  FinishReason reason = FinishReason::kStop;
  std::int64_t prompt_tokens = 0;
  std::int64_t generated_tokens = 0;
  CacheUse cache = {};
  double queue_seconds = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;
  std::optional<std::string> matched_stop = {};  // the stop string that ended it
  std::vector<std::int32_t> tokens = {};         // what was generated, exactly; without the end token
};

struct Failed {
  std::string message;
  std::string hint;
};

using StreamEvent = std::variant<PrefillProgress, PromptLogprobs, GeneratedToken, Finished, Failed>;

/// A request's events, in order; Finished or Failed is the last. Safe to use from another thread than the engine's.
/// Dropping the stream cancels the request.
class Stream {
 public:
  virtual ~Stream() = default;
  /// The next event, or nothing after `timeout`.
  virtual std::optional<StreamEvent> next(std::chrono::milliseconds timeout) = 0;
  /// Ends the request within one chunk or token; Finished with kCancelled follows.
  virtual void cancel() = 0;
};

struct EngineStats {
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  std::uint64_t requests = 0;
  std::uint64_t failed = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t cached_tokens = 0;
  std::uint64_t generated_tokens = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;
  std::size_t cache_bytes = 0;
  std::size_t cache_entries = 0;
  std::size_t cache_disk_bytes = 0;
};

/// Thrown by submit() for a prompt that is longer than the context.
class ContextTooLong : public Error {
 public:
  ContextTooLong(std::int64_t prompt, std::int64_t context)
      : Error(fmt::format("the prompt is too long: {} tokens > {} maximum", prompt, context),
              "shorten the conversation, or start the server with a larger --ctx") {}
};

/// Thrown by submit() when the queue is full; retry after a moment.
class QueueFull : public std::exception {
 public:
  const char* what() const noexcept override { return "the queue is full"; }
};

class Engine {
 public:
  /// `model` must outlive the engine. Starts the thread.
  Engine(LoadedModel& model, const EngineOptions& options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  /// Cancels what runs, waits for the thread.
  ~Engine();

  /// Throws Error for a prompt that cannot be served (empty, too long, foreign ids), QueueFull when too many wait.
  std::unique_ptr<Stream> submit(EngineRequest request);
  EngineStats stats() const;
  const EngineOptions& options() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lily
