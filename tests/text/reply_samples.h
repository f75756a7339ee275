// Replies in the notation of the tests: control tokens are spelled out in a string, events are summed up in one.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "text/reply_parser.h"

namespace lily {

/// Splits `text` at the spellings of control tokens.
inline Pieces tagged_pieces(std::string_view text) {
  constexpr std::array<std::string_view, 9> kTokens = {"<think>",      "</think>",        "<tool_call>",
                                                       "</tool_call>", "<tool_response>", "</tool_response>",
                                                       "<|im_start|>", "<|im_end|>",      "<|endoftext|>"};
  Pieces pieces;
  while (!text.empty()) {
    std::size_t begin = text.size();
    std::string_view token;
    for (const std::string_view candidate : kTokens) {
      if (const std::size_t at = text.find(candidate); at < begin) {
        begin = at;
        token = candidate;
      }
    }
    append_text(pieces, text.substr(0, begin));
    if (!token.empty()) append_control(pieces, token);
    text.remove_prefix(begin + token.size());
  }
  return pieces;
}

inline std::vector<ReplyEvent> parse_pieces(const Pieces& pieces, std::span<const ToolDefinition> tools,
                                            bool in_reasoning, bool parse_tool_calls = true) {
  ReplyParserOptions options;
  options.in_reasoning = in_reasoning;
  options.parse_tool_calls = parse_tool_calls;
  options.make_call_id = [] { return std::string("id"); };
  ReplyParser parser(tools, options);
  std::vector<ReplyEvent> all;
  const auto add = [&](std::vector<ReplyEvent> events) {
    for (ReplyEvent& event : events) all.push_back(std::move(event));
  };
  for (const Piece& piece : pieces) add(parser.push(piece.text, piece.control));
  add(parser.finish());
  return all;
}

/// Reasoning in {}, content as it is, calls as [name arguments], ! after a call that was cut off.
inline std::string summary(const std::vector<ReplyEvent>& events) {
  std::string all;
  bool in_reasoning = false;
  for (const ReplyEvent& event : events) {
    const bool reasoning = event.kind == ReplyEvent::Kind::kReasoning;
    if (reasoning != in_reasoning) all += reasoning ? "{" : "}";
    in_reasoning = reasoning;
    if (event.kind == ReplyEvent::Kind::kToolCall) {
      all += "[" + event.name + " ";
    } else if (event.kind == ReplyEvent::Kind::kToolCallEnd) {
      all += event.complete ? "]" : "]!";
    } else {
      all += event.text;
    }
  }
  return in_reasoning ? all + "}" : all;
}

}  // namespace lily
