// One reply in the making: from logits to the next token, its text, and the reason to end. It owns no session and calls
// no model, so that a scheduler can step many generations in one batch; generate() is the loop for one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sampling/sampler.h"
#include "sampling/stop_matcher.h"
#include "sampling/token_constraint.h"
#include "session/session.h"
#include "text/tokenizer.h"

namespace lily {

struct GenerationOptions {
  SamplingParams sampling = {};
  std::int64_t max_tokens = 0;         // 0: until the context is full
  std::vector<std::string> stop = {};  // looked for in what follows the thinking
  bool in_thinking = false;            // the prompt ended in <think>
  bool ignore_eos = false;             // for benchmarks: end tokens do not end a reply without constraint
  int top_logprobs = -1;               // -1: no log-probabilities
  /// Thinking tokens after which "</think>" is forced; -1: no budget.
  std::int64_t thinking_budget = -1;
  /// Restricts what follows the thinking; none: free text.
  std::shared_ptr<TokenConstraint> constraint = nullptr;
};

enum class FinishReason { kStop, kLength, kCancelled };

/// One generated token and the text that became certain with it. Ordinary text and a control token's spelling are told
/// apart by `control`; text may be empty (an incomplete character, or the possible beginning of a stop string).
struct GeneratedToken {
  std::string text;     // ordinary text
  std::string control;  // spelling of an added token, e.g. "</think>"; comes after `text`
  Sampled sampled;
  bool is_end = false;                 // an end token: it has no text and is no part of the reply
  std::optional<FinishReason> finish;  // set on the last one
};

class Generation {
 public:
  /// `eos`: ids that end the reply. `room`: tokens that the context can still take, see room_after(). Throws Error when
  /// an option is out of range.
  Generation(const Tokenizer& tokenizer, std::span<const std::int32_t> eos, const GenerationOptions& options,
             std::int64_t room);

  /// Chooses the next token. Unless it has `finish`, the token goes to the session before the next call.
  GeneratedToken next(std::span<const float> logits);

  /// The same for a token that the device chose.
  GeneratedToken take(std::int32_t token);

  /// Lets the device choose what follows `token`, the last one given: then session.draw() gives tokens for take().
  /// False where the backend cannot, or where this reply needs its logits on the host (log-probabilities, a constraint,
  /// a thinking budget).
  bool start_drawing(Session& session, std::int32_t token);
  /// Whether the token after the next is sure to be wanted, unless the next is an end token. Stop strings are known to
  /// the host alone, so with them the device must not run ahead.
  bool goes_on() const { return options_.stop.empty() && count_ + 1 < limit_; }

  /// The stop string that ended the reply.
  std::optional<std::string> matched_stop() const;
  std::int64_t count() const { return count_; }  // tokens so far, end token included

 private:
  GeneratedToken accept(Sampled sampled);
  std::span<const std::int32_t> ends() const;
  std::span<const std::uint32_t> allowed();
  void prepare_thinking_masks();
  void add_text(std::int32_t token, GeneratedToken& result);

  const Tokenizer& tokenizer_;
  std::vector<std::int32_t> eos_;
  GenerationOptions options_;
  Sampler sampler_;
  StreamDecoder decoder_;
  StopMatcher stops_;
  std::optional<std::int32_t> end_of_thinking_;
  std::optional<std::int32_t> tool_call_;
  std::vector<std::uint32_t> only_end_of_thinking_;   // the mask that closes the thinking when its budget is spent
  std::vector<std::uint32_t> until_end_of_thinking_;  // before a constraint; empty: every token
  std::int64_t limit_;                                // tokens after which the reply is cut
  std::int64_t count_ = 0;
};

/// Tokens that can be generated after `prompt` tokens in a context of `capacity`: the last one need not be stored.
inline std::int64_t room_after(std::int64_t prompt, std::int64_t capacity) {
  return capacity - prompt + 1;
}

/// Generates after a synced session until the end. `on_token` sees each token; false cancels. The last token of a reply
/// (end token, or the one that reached a limit) is not in the session.
FinishReason generate(Session& session, Generation& generation,
                      const std::function<bool(const GeneratedToken&)>& on_token);

}  // namespace lily
