// Two laws of the reply parser, on random replies: how a reply is cut does not matter, and what the chat format renders
// is read back.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "text/chat_format_json.h"
#include "text/reply_parser.h"
#include "text/reply_samples.h"
#include "text/tool_call_json.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

const char* const kTools = R"([
  {"name": "f", "parameters": {"properties": {"a": {"type": "string"}, "n": {"type": "integer"},
    "m": {"type": ["string", "null", "number", "boolean", "array"]}}}},
  {"name": "g"}])";

class RandomReplies {
 public:
  explicit RandomReplies(unsigned seed) : random_(seed) {}

  std::size_t below(std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random_); }

  // A reply that is mostly out of order.
  std::string reply() {
    static const std::vector<std::string> kWords = {"<think>",
                                                    "</think>",
                                                    "<tool_call>",
                                                    "</tool_call>",
                                                    "<tool_response>",
                                                    "<|im_start|>",
                                                    "<function=f>",
                                                    "<function=g>",
                                                    "<function=other>",
                                                    "</function>",
                                                    "<parameter=a>",
                                                    "<parameter=n>",
                                                    "<parameter=m>",
                                                    "<parameter=zzz>",
                                                    "</parameter>",
                                                    "<function=",
                                                    "<parameter",
                                                    "</para",
                                                    "</",
                                                    "<",
                                                    ">",
                                                    "\n",
                                                    "\n",
                                                    "\n\n",
                                                    " ",
                                                    "text",
                                                    "5",
                                                    "-1.5e3",
                                                    "null",
                                                    "True",
                                                    "tru",
                                                    "{\"k\": [1]}",
                                                    "[",
                                                    "é",
                                                    "😀",
                                                    "\"\\",
                                                    "\r\n"};
    std::string text;
    for (std::size_t i = below(40); i > 0; --i) text += kWords[below(kWords.size())];
    return text;
  }

  // A call in order, of whose tags some are missing.
  std::string call() {
    std::string text;
    const auto tag = [&](const char* spelling) {
      if (below(6) > 0) text += spelling;
    };
    tag("<tool_call>");
    text += "\n<function=f>\n";
    for (const char* name : {"a", "n", "m"}) {
      text += std::string("<parameter=") + name + ">\n" + value();
      tag("\n</parameter>");
      text += "\n";
    }
    tag("</function>\n");
    tag("</tool_call>");
    return text + "\n";
  }

  std::string value() {
    static const std::vector<std::string> kValues = {"",
                                                     "1",
                                                     "x",
                                                     "\n",
                                                     "a\nb",
                                                     "null",
                                                     "</parameter> x",
                                                     "\n</function>y",
                                                     "<tool_call>",
                                                     "true",
                                                     "[1]",
                                                     "<",
                                                     "</parameter>\n\n z"};
    return kValues[below(kValues.size())] + kValues[below(kValues.size())];
  }

  // The same text, cut at random between characters; control tokens stay whole.
  Pieces cut(const Pieces& pieces) {
    Pieces parts;
    for (const Piece& piece : pieces) {
      std::string part;
      for (std::size_t i = 0; i < piece.text.size(); ++i) {
        const bool starts_character = (static_cast<unsigned char>(piece.text[i]) & 0xc0) != 0x80;
        if (!piece.control && starts_character && !part.empty() && below(3) == 0) {
          parts.push_back({part, false});
          part.clear();
        }
        part += piece.text[i];
      }
      parts.push_back({part, piece.control});
    }
    return parts;
  }

 private:
  std::mt19937 random_;
};

TEST(ReplyParserProperty, CutsDoNotMatter) {
  const auto tools = tools_from_json(Json::parse(kTools));
  for (unsigned seed = 0; seed < 20000; ++seed) {
    RandomReplies random(seed);
    std::string text = random.below(2) == 0 ? random.reply() : "";
    for (std::size_t i = random.below(3); i > 0; --i) text += random.call();
    const Pieces whole = tagged_pieces(text);
    const bool in_reasoning = random.below(2) == 0;
    const auto expected = parse_pieces(whole, tools, in_reasoning);
    for (int times = 0; times < 3; ++times) {
      ASSERT_EQ(summary(parse_pieces(random.cut(whole), tools, in_reasoning)), summary(expected))
          << "seed " << seed << ": " << text;
    }
    ChatMessage message;
    for (const ReplyEvent& event : expected) apply(event, message);
    for (const ToolCall& call : message.tool_calls) {
      ASSERT_TRUE(Json::accept(call.arguments)) << "seed " << seed << ": " << text << "\n" << call.arguments;
      ASSERT_TRUE(Json::parse(call.arguments).is_object());
    }
  }
}

// Text that may stand in a value without being taken for its end.
std::string harmless_text(RandomReplies& random) {
  static const std::vector<std::string> kWords = {
      "\n",           " ", "x",  "</parameter>!", "<b>",  "&lt;", "\"",           "\\", "é", "😀", "5", "<function=f>",
      "</function>.", "<", "\t", "\r\n",          "null", "{",    "<parameter=q>"};
  std::string text;
  for (std::size_t i = random.below(8); i > 0; --i) text += kWords[random.below(kWords.size())];
  return text;
}

TEST(ReplyParserProperty, ReadsWhatTheChatFormatRenders) {
  const auto tools = tools_from_json(Json::parse(R"([{"name": "f", "parameters": {"properties": {
    "s": {"type": "string"}, "t": {"type": "string"}, "n": {"type": "number"}, "o": {"type": "object"},
    "b": {"type": "boolean"}, "l": {"type": ["array", "null"]}}}}])"));
  const std::vector<std::string> numbers = {"0", "-1", "1.0", "1e3", "123456789012345678901234567890", "0.10"};
  for (unsigned seed = 0; seed < 5000; ++seed) {
    RandomReplies random(seed);
    std::string arguments = "{\"s\":" + json_quoted(harmless_text(random)) + ",\"n\":" + numbers[random.below(6)];
    arguments += ",\"o\":{\"k\": " + json_quoted(harmless_text(random)) + ", \"v\": [1.50, null]}";
    arguments += std::string(",\"b\":") + (random.below(2) == 0 ? "true" : "false");
    arguments += std::string(",\"l\":") + (random.below(2) == 0 ? "[]" : "null");
    arguments += ",\"t\":" + json_quoted(harmless_text(random)) + "}";
    ChatMessage message = ChatMessage::of(Role::kAssistant, "text");
    message.reasoning_content = "thought";
    message.tool_calls = {{"", "f", arguments}, {"", "f", "{}"}};
    const std::vector<ChatMessage> chat = {ChatMessage::of(Role::kUser, "x"), message};
    const RenderedChat rendered = render_chat(chat, tools, {.add_generation_prompt = false});
    // The reply begins after "<|im_start|>assistant\n<think>".
    const auto begin = rendered.pieces.begin() + static_cast<std::ptrdiff_t>(rendered.last_query_end) + 3;
    const auto events = parse_pieces(random.cut(Pieces(begin, rendered.pieces.end())), tools, true);
    ASSERT_EQ(summary(events), "{thought}text[f " + arguments + "][f {}]") << "seed " << seed;
  }
}

}  // namespace
}  // namespace lily
