// What the model writes -> reasoning, content and tool calls, as it comes:
//
//   ...reasoning\n</think>\n\ncontent\n\n<tool_call>\n<function=NAME>\n...</function>\n</tool_call>
//
// The tags of thoughts and calls count when they are control tokens; the same characters spelled as text are text.
// The result does not depend on how the reply is cut into pieces. Deviations that models really produce are understood:
//   - before </think> everything is reasoning, also when the reply ends there;
//   - a call may begin in the reasoning, without </think>, and at the beginning of a line without <tool_call>, if the
//     function is known;
//   - <tool_call> without a whole <function=NAME> is text;
//   - tags that open or close nothing are dropped at the beginning of a section, and are text elsewhere.
// Line breaks that only separate sections are not part of them. What is in a call: tool_call_parser.h.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat_format.h"
#include "text/piece.h"
#include "text/reply_buffer.h"
#include "text/tool_call_parser.h"
#include "text/tool_call_schema.h"

namespace lily {

struct ReplyEvent {
  enum class Kind {
    kReasoning,      // text
    kContent,        // text
    kToolCall,       // index, id, name: the call begins
    kToolArguments,  // index, text: a fragment of the JSON of its arguments
    kToolCallEnd,    // index, complete
  };
  Kind kind = Kind::kContent;
  std::string text;
  std::size_t index = 0;  // of the call in the reply
  std::string id;
  std::string name;
  bool complete = true;  // false: the reply ended inside the call; its arguments are valid JSON all the same
};

/// A random id for a call, "call_" and 24 characters.
std::string random_call_id();

struct ReplyParserOptions {
  bool in_reasoning = true;      // the prompt ended in <think>
  bool parse_tool_calls = true;  // false: calls are text
  std::function<std::string()> make_call_id = random_call_id;
};

class ReplyParser {
 public:
  /// `tools` must outlive the parser. Calls of functions that are not among them are delivered too.
  explicit ReplyParser(std::span<const ToolDefinition> tools, ReplyParserOptions options = {});

  /// The next text of the reply (whole UTF-8 characters), or one control token. <|im_end|> and <|endoftext|> end the
  /// reply like finish(), and nothing after them counts.
  std::vector<ReplyEvent> push(std::string_view text, bool control);
  /// The reply has ended, for whatever reason.
  std::vector<ReplyEvent> finish();

  /// Whether the thoughts have not ended yet.
  bool in_reasoning() const { return in_reasoning_; }
  std::size_t num_calls() const { return num_calls_; }
  /// Everything that was pushed, end tokens apart: to replay the turn exactly (ChatMessage::sampled, after
  /// reply_opening()).
  const Pieces& raw() const { return raw_; }

 private:
  void process();
  bool step();
  bool control_step();
  void begin_call(const std::string& name);
  bool advance_call();
  bool at_line_start() const { return !section_begun_ || held_line_breaks_ > 0; }
  void begin_section();
  void emit_text(std::string_view text);
  void emit(ReplyEvent::Kind kind, std::string_view text);
  const ToolDefinition* find_tool(std::string_view name) const;

  std::span<const ToolDefinition> tools_;
  ReplyParserOptions options_;
  ReplyBuffer buffer_;
  Pieces raw_;
  std::vector<ReplyEvent> events_;
  std::optional<ToolCallParser> call_;
  std::size_t num_calls_ = 0;
  bool in_reasoning_;
  bool section_begun_ = false;        // text of this section was emitted
  std::size_t held_line_breaks_ = 0;  // line breaks that may turn out to be separators
  bool has_reasoning_ = false;        // in any section so far
  bool has_content_ = false;
};

/// Adds an event to the message that the events of one reply make up.
void apply(const ReplyEvent& event, ChatMessage& message);

}  // namespace lily
