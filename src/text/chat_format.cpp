#include "text/chat_format.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "support/error.h"
#include "text/tool_call_json.h"

namespace lily {
namespace {

constexpr std::string_view kTurnBegin = "<|im_start|>";
constexpr std::string_view kTurnEnd = "<|im_end|>";
constexpr std::string_view kThink = "<think>";
constexpr std::string_view kThinkEnd = "</think>";
constexpr std::string_view kCall = "<tool_call>";
constexpr std::string_view kCallEnd = "</tool_call>";
constexpr std::string_view kResponse = "<tool_response>";
constexpr std::string_view kResponseEnd = "</tool_response>";

// Fixed words of the format, which the model was trained on. Tags in them are control tokens.
constexpr std::string_view kToolsBegin = "# Tools\n\nYou have access to the following functions:\n\n<tools>";
constexpr std::string_view kToolsEnd =
    "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:\n\n"
    "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n</parameter>\n"
    "<parameter=example_parameter_2>\nThis is the value for the second parameter\nthat can span\nmultiple lines\n"
    "</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\nReminder:\n"
    "- Function calls MUST follow the specified format: an inner <function=...></function> block must be nested within "
    "<tool_call></tool_call> XML tags\n"
    "- Required parameters MUST be specified\n"
    "- You may provide optional reasoning for your function call in natural language BEFORE the function call, but NOT "
    "after\n"
    "- If there is no function call available, answer the question like normal with your current knowledge and do not "
    "tell the user about function calls\n</IMPORTANT>";

void append_format_text(Pieces& pieces, std::string_view text) {
  while (!text.empty()) {
    std::size_t begin = text.size();
    std::string_view tag;
    for (const std::string_view candidate : {kCall, kCallEnd}) {
      const std::size_t at = text.find(candidate);
      if (at < begin) std::tie(begin, tag) = std::pair(at, candidate);
    }
    append_text(pieces, text.substr(0, begin));
    if (!tag.empty()) append_control(pieces, tag);
    text.remove_prefix(begin + tag.size());
  }
}

void append(Pieces& pieces, const Pieces& more) {
  for (const Piece& piece : more) {
    if (piece.control || !piece.tokens.empty()) {
      pieces.push_back(piece);
    } else {
      append_text(pieces, piece.text);
    }
  }
}

// The bytes of the white space character at the beginning (or end) of `text`, 0 if there is none. White space is what
// Python's str.strip() removes.
constexpr std::array<std::string_view, 29> kSpaces = {
    " ",      "\n",     "\t",     "\r",     "\v",     "\f",     "\x1c",   "\x1d",   "\x1e",   "\x1f",
    "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002", "\u2003", "\u2004", "\u2005", "\u2006",
    "\u2007", "\u2008", "\u2009", "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"};

std::size_t space_at_front(std::string_view text) {
  for (const std::string_view space : kSpaces) {
    if (text.starts_with(space)) return space.size();
  }
  return 0;
}

std::size_t space_at_back(std::string_view text) {
  for (const std::string_view space : kSpaces) {
    if (text.ends_with(space)) return space.size();
  }
  return 0;
}

std::string_view trim(std::string_view text) {
  while (const std::size_t size = space_at_front(text)) text.remove_prefix(size);
  while (const std::size_t size = space_at_back(text)) text.remove_suffix(size);
  return text;
}

// A message's content as one text. Placeholders of images and videos are spelled out in it, and are the only control
// tokens: `media` has their offsets.
struct Content {
  std::string text;
  std::vector<std::size_t> media;

  explicit Content(const ChatMessage& message) {
    for (const ContentPart& part : message.content) {
      if (part.kind == ContentPart::Kind::kText) {
        text += part.text;
      } else {
        media.push_back(text.size());
        const char* pad = part.kind == ContentPart::Kind::kImage ? "<|image_pad|>" : "<|video_pad|>";
        text += fmt::format("<|vision_start|>{}<|vision_end|>", pad);
      }
    }
  }

  void append_to(Pieces& pieces, std::string_view part) const {
    const auto begin = static_cast<std::size_t>(part.data() - text.data());
    std::size_t done = 0;
    for (const std::size_t offset : media) {
      if (offset < begin || offset >= begin + part.size()) continue;
      append_text(pieces, part.substr(done, offset - begin - done));
      done = offset - begin;
      for (int token = 0; token < 3; ++token) {
        const std::size_t size = part.find('>', done) + 1 - done;
        append_control(pieces, part.substr(done, size));
        done += size;
      }
    }
    append_text(pieces, part.substr(done));
  }
};

bool is_system(const ChatMessage& message) {
  return message.role == Role::kSystem || message.role == Role::kDeveloper;
}

bool is_query(const ChatMessage& message) {
  if (message.role != Role::kUser) return false;
  const Content content(message);
  const std::string_view text = trim(content.text);
  return !(text.starts_with(kResponse) && text.ends_with(kResponseEnd));
}

class Renderer {
 public:
  Renderer(std::span<const ChatMessage> messages, std::span<const ToolDefinition> tools, const ChatOptions& options)
      : messages_(messages), tools_(tools), options_(options) {}

  RenderedChat render() {
    if (messages_.empty()) throw Error("there are no messages", "send at least one");
    while (leading_ < messages_.size() && is_system(messages_[leading_])) ++leading_;
    for (std::size_t i = leading_; i < messages_.size(); ++i) {
      if (is_query(messages_[i])) last_query_ = i;
    }
    leading_system();
    // A tool result as the very first message goes on in the text after the tools: there is no cut.
    const std::size_t system_end = messages_.front().role == Role::kTool ? 0 : pieces().size();
    out_.system_end = out_.last_query_begin = out_.last_query_end = system_end;
    for (std::size_t i = leading_; i < messages_.size(); ++i) {
      if (i == last_query_) out_.last_query_begin = pieces().size();
      message(i);
      if (i == last_query_) out_.last_query_end = pieces().size();
    }
    out_.reply_begin = pieces().size();
    if (options_.add_generation_prompt) {
      begin_turn("assistant\n");
      append(pieces(), reply_opening(options_.enable_thinking));
    }
    return std::move(out_);
  }

 private:
  Pieces& pieces() { return out_.pieces; }

  void begin_turn(std::string_view role_line) {
    append_control(pieces(), kTurnBegin);
    append_text(pieces(), role_line);
  }

  void end_turn() {
    append_control(pieces(), kTurnEnd);
    append_text(pieces(), "\n");
  }

  std::string system_text(const ChatMessage& message) const {
    const Content content(message);
    if (!content.media.empty()) {
      throw Error("a system message contains an image or a video", "put it into a user message");
    }
    return std::string(trim(content.text));
  }

  void leading_system() {
    if (tools_.empty() && leading_ == 0) return;
    std::string text;
    for (const ChatMessage& message : messages_.first(leading_)) {
      const std::string part = system_text(message);
      if (!part.empty()) text += (text.empty() ? "" : "\n\n") + part;
    }
    begin_turn("system\n");
    if (!tools_.empty()) {
      append_format_text(pieces(), kToolsBegin);
      for (const ToolDefinition& tool : tools_) append_text(pieces(), "\n" + tool.json);
      append_format_text(pieces(), kToolsEnd);
      if (!text.empty()) append_text(pieces(), "\n\n");
    }
    append_text(pieces(), text);
    end_turn();
  }

  void message(std::size_t index) {
    const ChatMessage& message = messages_[index];
    const Content content(message);
    out_.has_media |= !content.media.empty();
    switch (message.role) {
      case Role::kSystem:
      case Role::kDeveloper:
        begin_turn("system\n");
        append_text(pieces(), system_text(message));
        end_turn();
        break;
      case Role::kUser:
        begin_turn("user\n");
        content.append_to(pieces(), trim(content.text));
        end_turn();
        break;
      case Role::kAssistant:
        assistant(index, content);
        break;
      case Role::kTool:
        tool_result(index, content);
        break;
    }
  }

  void assistant(std::size_t index, const Content& content) {
    const ChatMessage& message = messages_[index];
    const bool shows_reasoning = options_.preserve_thinking || !last_query_ || index > *last_query_;
    begin_turn("assistant\n");
    if (shows_reasoning && !message.sampled.empty()) {
      append(pieces(), message.sampled);
      end_turn();
      return;
    }
    std::string_view text = trim(content.text);
    std::string_view reasoning = message.reasoning_content ? std::string_view(*message.reasoning_content) : "";
    const bool reasoning_is_content = !message.reasoning_content && text.find(kThinkEnd) != std::string_view::npos;
    if (reasoning_is_content) {
      reasoning = text.substr(0, text.find(kThinkEnd));
      const std::size_t opening = reasoning.rfind(kThink);
      if (opening != std::string_view::npos) reasoning.remove_prefix(opening + kThink.size());
      text.remove_prefix(text.rfind(kThinkEnd) + kThinkEnd.size());
      while (text.starts_with('\n')) text.remove_prefix(1);
    }
    if (shows_reasoning) {
      append_control(pieces(), kThink);
      append_text(pieces(), "\n");
      if (reasoning_is_content) {
        content.append_to(pieces(), trim(reasoning));
      } else {
        append_text(pieces(), trim(reasoning));
      }
      append_text(pieces(), "\n");
      append_control(pieces(), kThinkEnd);
      append_text(pieces(), "\n\n");
    }
    content.append_to(pieces(), text);
    const char* separator = trim(text).empty() ? "" : "\n\n";
    for (const ToolCall& call : message.tool_calls) {
      append_text(pieces(), std::exchange(separator, "\n"));
      tool_call(call);
    }
    end_turn();
  }

  void tool_call(const ToolCall& call) {
    append_control(pieces(), kCall);
    append_text(pieces(), "\n<function=" + call.name + ">\n");
    if (const auto arguments = split_arguments(call.arguments)) {
      for (const ToolArgument& argument : *arguments) {
        append_text(pieces(), "<parameter=" + argument.name + ">\n" + argument.text + "\n</parameter>\n");
      }
    } else {
      append_text(pieces(), call.arguments + "\n");
    }
    append_text(pieces(), "</function>\n");
    append_control(pieces(), kCallEnd);
  }

  // Results that follow each other share one user turn. As in the template, a result that is the very first message has
  // no beginning of a turn.
  void tool_result(std::size_t index, const Content& content) {
    const auto is_result = [&](std::size_t i) { return messages_[i].role == Role::kTool; };
    if (index > 0 && !is_result(index - 1)) begin_turn("user");
    append_text(pieces(), "\n");
    append_control(pieces(), kResponse);
    append_text(pieces(), "\n");
    content.append_to(pieces(), trim(content.text));
    append_text(pieces(), "\n");
    append_control(pieces(), kResponseEnd);
    if (index + 1 == messages_.size() || !is_result(index + 1)) end_turn();
  }

  std::span<const ChatMessage> messages_;
  std::span<const ToolDefinition> tools_;
  const ChatOptions& options_;
  std::size_t leading_ = 0;                // system and developer messages at the beginning
  std::optional<std::size_t> last_query_;  // index of the last user message that is not a tool result
  RenderedChat out_;
};

}  // namespace

ChatMessage ChatMessage::of(Role role, std::string text) {
  ChatMessage message;
  message.role = role;
  message.content.push_back({ContentPart::Kind::kText, std::move(text)});
  return message;
}

std::string ChatMessage::text() const {
  std::string all;
  for (const ContentPart& part : content) all += part.text;
  return all;
}

RenderedChat render_chat(std::span<const ChatMessage> messages, std::span<const ToolDefinition> tools,
                         const ChatOptions& options) {
  return Renderer(messages, tools, options).render();
}

Pieces reply_opening(bool enable_thinking) {
  if (enable_thinking) return {{"<think>", true}, {"\n", false}};
  return {{"<think>", true}, {"\n\n", false}, {"</think>", true}, {"\n\n", false}};
}

std::string plain_text(const Pieces& pieces) {
  std::string text;
  for (const Piece& piece : pieces) text += piece.text;
  return text;
}

void append_text(Pieces& pieces, std::string_view text) {
  if (text.empty()) return;
  if (pieces.empty() || pieces.back().control || !pieces.back().tokens.empty()) {
    pieces.push_back({std::string(text), false});
  } else {
    pieces.back().text += text;
  }
}

void append_control(Pieces& pieces, std::string_view token) {
  pieces.push_back({std::string(token), true});
}

}  // namespace lily
