// One conversation with a loaded model: messages in, the events of a reply out. Knows nothing of terminals.
//
// The session keeps what was computed. A new question drops the thinking of the turns before it (unless it is
// preserved), so the timeline goes back to where the last reply began: a snapshot is kept there, at the end of the
// system turn and before the last question.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/generation.h"
#include "engine/loaded_model.h"
#include "sampling/sampler.h"
#include "session/session.h"
#include "text/chat_format.h"
#include "text/reply_parser.h"

namespace lily {

struct ReplyRequest {
  bool thinking = true;
  bool preserve_thinking = false;
  SamplingParams sampling;
  std::int64_t max_tokens = 0;  // 0: what the context can take
  /// Prompt tokens computed and to compute, after each chunk; false stops.
  std::function<bool(std::int64_t, std::int64_t)> on_progress;
  /// Each part of the reply as it comes; then, per token, whether to go on.
  std::function<void(const ReplyEvent&)> on_event;
  std::function<bool()> goes_on;
};

struct ReplyResult {
  FinishReason finish = FinishReason::kStop;
  bool started = false;            // false: stopped while the prompt was read; the conversation is as before
  bool calls_are_complete = true;  // no tool call was cut off
  std::int64_t prompt_tokens = 0;
  std::int64_t reused_tokens = 0;  // of the prompt, not computed again
  std::int64_t generated_tokens = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;
};

class Conversation {
 public:
  /// `model` must outlive the conversation. `context`: tokens of prompt and reply together.
  Conversation(LoadedModel& model, std::int64_t context);

  /// Generates the next assistant message and appends it. Throws Error, the conversation unchanged, when the prompt
  /// does not fit into the context.
  ReplyResult reply(const ReplyRequest& request);

  std::int64_t context_used() const { return static_cast<std::int64_t>(session_.tokens().size()); }
  std::int64_t context() const { return session_.capacity(); }

  std::vector<ChatMessage> messages;
  std::vector<ToolDefinition> tools;

 private:
  bool read_prompt(const ReplyRequest& request, ReplyResult& result);
  std::vector<std::int32_t> encode(const RenderedChat& chat, std::vector<std::int64_t>& snapshots) const;
  ChatMessage generate_message(const ReplyRequest& request, ReplyResult& result);

  LoadedModel& model_;
  Session session_;
};

}  // namespace lily
