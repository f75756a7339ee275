// The chat format of Qwen3.6: messages and tools -> the prompt. Its text equals the official template's wherever that
// renders. Where the template raises, requests that clients really send are served:
//   - system and developer messages at the beginning are one system turn, joined by an empty line;
//   - later ones are a system turn in their place, so that what is before them stays a common prefix;
//   - without any user message (or only with tool results) the rest is rendered as it is, its reasoning kept;
//   - arguments are JSON text, of which names, order and numbers are kept. Arguments that are no JSON object (a call
//   that
//     was cut, and is part of the history now) stand raw between <function=...> and </function>.
// What else raises there is an Error here: no messages, images in a system message, roles and contents of unknown
// kinds.
//
// Text of messages and tools never becomes a control token: the tokens that the format itself writes are control
// pieces, all other text is ordinary, "<|im_end|>", "<think>" and "<tool_call>" in it included.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "text/piece.h"
#include "text/tool_call_schema.h"

namespace lily {

enum class Role { kSystem, kDeveloper, kUser, kAssistant, kTool };

struct ContentPart {
  enum class Kind { kText, kImage, kVideo };
  Kind kind = Kind::kText;
  std::string text;  // of kText
};

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text of an object, as the model or the client wrote it
};

struct ChatMessage {
  Role role = Role::kUser;
  std::vector<ContentPart> content;
  std::optional<std::string> reasoning_content;  // none: <think>...</think> in the content is taken for it
  std::vector<ToolCall> tool_calls;
  std::string tool_call_id;  // not rendered: results stand in the order of the messages
  std::string name;          // not rendered either
  /// An assistant's turn exactly as it was sampled, from <think> on: reply_opening(), then what the model wrote. It is
  /// rendered instead of the fields above as long as the format shows the turn's reasoning.
  Pieces sampled;

  static ChatMessage of(Role role, std::string text);
  /// The text of all text parts.
  std::string text() const;
};

struct ChatOptions {
  bool enable_thinking = true;
  bool preserve_thinking = false;  // keep the reasoning of turns before the last user query
  bool add_generation_prompt = true;
};

/// The prompt, and where it can be cut: numbers of leading pieces. Each is followed by a control piece or the end, so
/// the tokens of such a prefix are a prefix of the tokens of the whole.
struct RenderedChat {
  Pieces pieces;
  std::size_t system_end = 0;        // after the leading system turn with the tools; 0: there is none
  std::size_t last_query_begin = 0;  // before the last user turn that is not a tool result
  std::size_t last_query_end = 0;    // after it: the reasoning that follows is dropped when the next query comes
  std::size_t reply_begin = 0;       // before the generation prompt; everything when there is none
  bool has_media = false;            // images or videos, for which there are only placeholders
};

/// Throws Error for conversations that have no rendering, see above.
RenderedChat render_chat(std::span<const ChatMessage> messages, std::span<const ToolDefinition> tools,
                         const ChatOptions& options);

/// What the generation prompt ends in, after "<|im_start|>assistant\n".
Pieces reply_opening(bool enable_thinking);

/// The text of pieces, control tokens spelled out.
std::string plain_text(const Pieces& pieces);

/// Appends text or a control token; adjacent text becomes one piece.
void append_text(Pieces& pieces, std::string_view text);
void append_control(Pieces& pieces, std::string_view token);

}  // namespace lily
