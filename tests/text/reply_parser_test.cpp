// Replies as models write them, well formed and not, and the events that must come of them.
#include "text/reply_parser.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "text/chat_format_json.h"
#include "text/reply_samples.h"

namespace lily {
namespace {

const char* const kTools = R"([
  {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {
    "a": {"type": "string"}, "b": {"type": "string"}, "n": {"type": "integer"}, "x": {"type": "number"},
    "flag": {"type": "boolean"}, "o": {"type": "object"}, "l": {"type": "array"},
    "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "mixed": {"type": ["string", "integer", "object"]},
    "color": {"enum": ["red", "blue"]}, "level": {"$ref": "#/$defs/Level"}, "free": {}},
    "$defs": {"Level": {"type": "integer"}}}}},
  {"type": "function", "function": {"name": "bash", "parameters": {"properties": {"command": {"type": "string"}}}}},
  {"type": "function", "function": {"name": "now"}}])";

const std::vector<ToolDefinition>& tools() {
  static const std::vector<ToolDefinition> kAll = tools_from_json(nlohmann::ordered_json::parse(kTools));
  return kAll;
}

// The reply as one line: reasoning in {}, content as it is, calls as [name arguments], ! after a call that was cut off.
std::string parse(const std::string& reply, bool in_reasoning = false, bool parse_tool_calls = true) {
  return summary(parse_pieces(tagged_pieces(reply), tools(), in_reasoning, parse_tool_calls));
}

// A call of f with this between its tags.
std::string call_f(const std::string& body) {
  return "<tool_call>\n<function=f>\n" + body + "</function>\n</tool_call>";
}

// The JSON of one argument that is written as `text`.
std::string argument(const std::string& name, const std::string& text) {
  const std::string all = parse(call_f("<parameter=" + name + ">\n" + text + "\n</parameter>\n"));
  const std::string begin = "[f {\"" + name + "\":";
  EXPECT_TRUE(all.starts_with(begin) && all.ends_with("}]")) << all;
  return all.substr(begin.size(), all.size() - begin.size() - 2);
}

TEST(ReplyParser, SplitsReasoningAndContent) {
  EXPECT_EQ(parse("Let me think.\n\nYes.\n</think>\n\nAnswer\nline\n", true), "{Let me think.\n\nYes.}Answer\nline\n");
  EXPECT_EQ(parse("\n\n</think>\n\nAnswer", true), "Answer");
  EXPECT_EQ(parse("Answer"), "Answer");
  EXPECT_EQ(parse("  indented\n  lines"), "  indented\n  lines");
}

TEST(ReplyParser, EverythingBeforeTheEndOfThoughtsIsReasoning) {
  EXPECT_EQ(parse("I was cut by max_tok", true), "{I was cut by max_tok}");
  EXPECT_EQ(parse("", true), "");
}

TEST(ReplyParser, StrayTagsAtTheBeginningOfSectionsAreDropped) {
  EXPECT_EQ(parse("<think>\nagain\n</think>\n\nAnswer", true), "{again}Answer");
  EXPECT_EQ(parse("<think>\nthought\n</think>\n\nAnswer", false), "{thought}Answer");
  EXPECT_EQ(parse("\n</think>\n\nAnswer", false), "Answer");
  EXPECT_EQ(parse("The tag <think> opens, </think> closes.", false), "The tag <think> opens, </think> closes.");
}

TEST(ReplyParser, SpelledTagsAreText) {
  Pieces pieces = {
      {"I write </think> and <tool_call>\n<function=f>", false}, {"</think>", true}, {"Done </think>", false}};
  EXPECT_EQ(summary(parse_pieces(pieces, tools(), true)),
            "{I write </think> and <tool_call>\n<function=f>}Done </think>");
}

TEST(ReplyParser, EndTokensEndTheReply) {
  EXPECT_EQ(parse("Answer<|im_end|>\n<|im_start|>user\nmore"), "Answer");
  EXPECT_EQ(parse("Answer<|endoftext|>more"), "Answer");
}

TEST(ReplyParser, ReadsCalls) {
  EXPECT_EQ(parse("Let me see.\n\n<tool_call>\n<function=f>\n<parameter=a>\nParis\n</parameter>\n<parameter=n>\n2\n"
                  "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>"),
            "Let me see.[f {\"a\":\"Paris\",\"n\":2}][now {}]");
  EXPECT_EQ(parse("need it\n</think>\n\n<tool_call>\n<function=now>\n</function>\n</tool_call>", true),
            "{need it}[now {}]");
  EXPECT_EQ(parse("A\n\n<tool_call>\n<function=now>\n</function>\n</tool_call>\nB"), "A[now {}]\nB");
}

TEST(ReplyParser, ValuesAreRawText) {
  EXPECT_EQ(parse("<tool_call>\n<function=bash>\n<parameter=command>\npwd && ls -la <a >b; echo \"x<y\" '&amp;'\n"
                  "</parameter>\n</function>\n</tool_call>"),
            R"([bash {"command":"pwd && ls -la <a >b; echo \"x<y\" '&amp;'"}])");
  EXPECT_EQ(argument("a", "\t\\ \"é😀\r\n"), "\"\\t\\\\ \\\"é😀\\r\\n\"");
}

TEST(ReplyParser, TrimsExactlyOneLineBreakOnEachSide) {
  EXPECT_EQ(argument("a", ""), "\"\"");
  EXPECT_EQ(argument("a", "\n\n x \n\n"), R"("\n\n x \n\n")");
  EXPECT_EQ(parse(call_f("<parameter=a></parameter>")), R"([f {"a":""}])");
  EXPECT_EQ(parse(call_f("<parameter=a>\n</parameter>")), R"([f {"a":""}])");
  EXPECT_EQ(parse(call_f("<parameter=a>x</parameter><parameter=b>y</parameter>")), R"([f {"a":"x","b":"y"}])");
}

TEST(ReplyParser, ValuesMayContainTheTags) {
  EXPECT_EQ(argument("a", "x\nb</parameter> <x> & \"q\""), R"("x\nb</parameter> <x> & \"q\"")");
  EXPECT_EQ(argument("a", "\n</parameter>\nmore\n</function>\nmore"), R"("\n</parameter>\nmore\n</function>\nmore")");
  EXPECT_EQ(argument("a", "x <parameter=b> y"), R"("x <parameter=b> y")");
  EXPECT_EQ(argument("a", "<think>\n<tool_response> and </tool_call> in text"),
            R"("<think>\n<tool_response> and </tool_call> in text")");
  EXPECT_EQ(argument("a", "<|im_start|>system\n<parameter=zzz>\n1"), R"("<|im_start|>system\n<parameter=zzz>\n1")");
}

TEST(ReplyParser, ConvertsByTheSchema) {
  EXPECT_EQ(argument("n", "42"), "42");
  EXPECT_EQ(argument("n", " 42\n"), "42");
  EXPECT_EQ(argument("x", "1e3"), "1e3");
  EXPECT_EQ(argument("x", "1.0"), "1.0");
  EXPECT_EQ(argument("flag", "true"), "true");
  EXPECT_EQ(argument("flag", "True"), "true");
  EXPECT_EQ(argument("flag", "False"), "false");
  EXPECT_EQ(argument("n", "null"), "null");
  EXPECT_EQ(argument("n", "None"), "null");
  EXPECT_EQ(argument("o", "{\"z\": 1.50,\n \"a\": null}"), "{\"z\": 1.50,\n \"a\": null}");
  EXPECT_EQ(argument("l", "[1, \"é\"]"), "[1, \"é\"]");
  EXPECT_EQ(argument("a", "42"), "\"42\"");
  EXPECT_EQ(argument("a", "null"), "\"null\"");
  EXPECT_EQ(argument("color", "red"), "\"red\"");
  EXPECT_EQ(argument("level", "3"), "3");
}

TEST(ReplyParser, SeveralTypes) {
  EXPECT_EQ(argument("maybe", "null"), "null");
  EXPECT_EQ(argument("maybe", "nullable"), "\"nullable\"");
  EXPECT_EQ(argument("maybe", "5"), "\"5\"");
  EXPECT_EQ(argument("mixed", "5"), "5");
  EXPECT_EQ(argument("mixed", "2026-01-15"), "\"2026-01-15\"");
  EXPECT_EQ(argument("mixed", "{\"a\": 1}"), "{\"a\": 1}");
  EXPECT_EQ(argument("mixed", "[1]"), "\"[1]\"");
  EXPECT_EQ(argument("free", "[1]"), "[1]");
  EXPECT_EQ(argument("free", "text"), "\"text\"");
  EXPECT_EQ(argument("unknown", "1.5"), "1.5");
}

TEST(ReplyParser, WhatDoesNotConvertStaysAString) {
  EXPECT_EQ(argument("n", "2026-01-15"), "\"2026-01-15\"");
  EXPECT_EQ(argument("flag", "yes"), "\"yes\"");
  EXPECT_EQ(argument("o", "{'a':1}"), "\"{'a':1}\"");
  EXPECT_EQ(argument("l", "[1, True]"), "\"[1, True]\"");
  EXPECT_EQ(argument("n", ""), "\"\"");
  EXPECT_EQ(argument("n", "NaN"), "\"NaN\"");
  EXPECT_EQ(argument("n",
                     "\xef\xbb\xbf"
                     "5"),
            "\"\xef\xbb\xbf"
            "5\"");
}

TEST(ReplyParser, MissingClosingTags) {
  const std::string both = R"([f {"a":"1","b":"2"}])";
  EXPECT_EQ(parse("<tool_call>\n<function=f>\n<parameter=a>\n1\n<parameter=b>\n2\n</function>"), both);
  EXPECT_EQ(parse("<tool_call>\n<function=f>\n<parameter=a>\n1\n<parameter=b>\n2\n</function>\n</tool_call>"), both);
  EXPECT_EQ(parse("<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n</tool_call>"), both);
  EXPECT_EQ(parse("<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n</parameter>\n"
                  "</tool_call>"),
            both);
  EXPECT_EQ(parse("<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\n2\n</parameter>\n"
                  "</function>\n<tool_call>\n<function=now>\n</function>\n</tool_call>"),
            both + "[now {}]");
  EXPECT_EQ(
      parse("<tool_call>\n<function=f>\n<parameter=a>\n1\n<tool_call>\n<function=now>\n</function>\n</tool_call>"),
      R"([f {"a":"1"}][now {}])");
  EXPECT_EQ(parse("<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n</tool_call>\nText."),
            "[f {\"a\":\"1\"}]Text.");
}

TEST(ReplyParser, CallsThatAreCutOffAreDelivered) {
  const std::string begin = "<tool_call>\n<function=f>\n<parameter=a>\n";
  EXPECT_EQ(parse("<tool_call>\n<function=f>"), "[f {}]!");
  EXPECT_EQ(parse("<tool_call>\n<function=f>\n<parameter=a"), "[f {}]!");
  EXPECT_EQ(parse(begin), R"([f {"a":""}]!)");
  EXPECT_EQ(parse(begin + "half of a li"), R"([f {"a":"half of a li"}]!)");
  EXPECT_EQ(parse(begin + "text\n"), R"([f {"a":"text"}]!)");
  EXPECT_EQ(parse(begin + "text\n</para"), R"([f {"a":"text"}]!)");
  EXPECT_EQ(parse(begin + "if a <"), R"([f {"a":"if a <"}]!)");
  EXPECT_EQ(parse(begin + "text\n</parameter>\n"), R"([f {"a":"text"}]!)");
  EXPECT_EQ(parse("<tool_call>\n<function=f>\n<parameter=o>\n{\"a\": [1, 2"), "[f {\"o\":\"{\\\"a\\\": [1, 2\"}]!");
}

TEST(ReplyParser, WithoutAWholeHeaderItIsText) {
  EXPECT_EQ(parse("Look:\n<tool_call>\n<function=get_wea"), "Look:\n<tool_call>\n<function=get_wea");
  EXPECT_EQ(parse("<tool_call>"), "<tool_call>");
  EXPECT_EQ(parse("<tool_call> is the tag."), "<tool_call> is the tag.");
  EXPECT_EQ(parse("I could <tool_call> now", true), "{I could <tool_call> now}");
}

TEST(ReplyParser, MissingOpeningTags) {
  EXPECT_EQ(parse("Let me see.\n<function=now>\n</function>\n</tool_call>"), "Let me see.[now {}]");
  EXPECT_EQ(parse("<function=other>\n</function>"), "<function=other>\n</function>");
  EXPECT_EQ(parse("The line <function=now> is text."), "The line <function=now> is text.");
  EXPECT_EQ(parse("I call it.\n<tool_call>\n<function=now>\n</function>\n</tool_call>", true), "{I call it.}[now {}]");
  EXPECT_EQ(parse("Is <tool_call>\n<function=other> a call?", true), "{Is <tool_call>\n<function=other> a call?}");
}

TEST(ReplyParser, FunctionsThatAreUnknownAreDelivered) {
  EXPECT_EQ(parse("<tool_call>\n<function=other>\n<parameter=a>\n5\n</parameter>\n<parameter=b>\nx\n</parameter>\n"
                  "</function>\n</tool_call>"),
            R"([other {"a":5,"b":"x"}])");
  EXPECT_EQ(parse("<tool_call>\n<function=\"now\">\n</function>\n</tool_call>"), "[now {}]");
}

TEST(ReplyParser, OddBodies) {
  EXPECT_EQ(parse(call_f("{\"a\": \"x\"}\n")), R"([f {"a": "x"}])");
  EXPECT_EQ(parse(call_f("city: Paris\n")), "[f {}]");
  EXPECT_EQ(parse(call_f("<parameter=a>\n1\n</parameter>\n</invoke>\n<parameter=b>\n2\n</parameter>\n")),
            "[f {\"a\":\"1\\n</parameter>\\n</invoke>\",\"b\":\"2\"}]");
  EXPECT_EQ(parse(call_f("<parameter=n>\n1\n</parameter>\n<parameter=n>\n2\n</parameter>\n")), R"([f {"n":1}])");
}

TEST(ReplyParser, CallsAreTextWhenToolsAreOff) {
  const std::string reply = "<tool_call>\n<function=now>\n</function>\n</tool_call>";
  EXPECT_EQ(parse(reply, false, false), reply);
}

TEST(ReplyParser, HeaderAndStringsComeAtOnce) {
  ReplyParser parser(tools(), {.in_reasoning = false});
  parser.push("<tool_call>", true);
  EXPECT_TRUE(parser.push("\n<function=f", false).empty());
  auto events = parser.push(">", false);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, ReplyEvent::Kind::kToolCall);
  EXPECT_TRUE(events[0].id.starts_with("call_")) << events[0].id;
  EXPECT_EQ(events[0].name, "f");
  const auto arguments = [&](const char* text) {
    std::string json;
    for (const ReplyEvent& event : parser.push(text, false)) json += event.text;
    return json;
  };
  EXPECT_EQ(arguments("\n<parameter=a>"), "{\"a\":\"");
  EXPECT_EQ(arguments("\nfirst"), "first");
  EXPECT_EQ(arguments(" line"), " line");
  EXPECT_EQ(arguments("\n"), "");  // it may be the last one
  EXPECT_EQ(arguments("<"), "");
  EXPECT_EQ(arguments("b>"), "\\n<b>");
  EXPECT_EQ(arguments("\n</parameter>"), "");
  EXPECT_EQ(arguments("\n</function>"), "\"}");
  EXPECT_EQ(parser.num_calls(), 1U);
}

TEST(ReplyParser, KeepsTheRawReply) {
  ReplyParser parser(tools(), {.in_reasoning = true});
  const Pieces reply = tagged_pieces("a\n</think>\n\n<tool_call>\n<function=f>\n<parameter=n>\n 1\n</parameter>");
  for (const Piece& piece : reply) parser.push(piece.text, piece.control);
  parser.push("<|im_end|>", true);
  EXPECT_EQ(plain_text(parser.raw()), plain_text(reply));
}

TEST(ReplyParser, IdsDiffer) {
  EXPECT_NE(random_call_id(), random_call_id());
  EXPECT_EQ(random_call_id().size(), 29U);
}

TEST(ToolDefinition, SchemasThatAreNoSchemasSayNothing) {
  const std::vector<std::string> schemas = {
      R"([])",
      R"({"properties": []})",
      R"({"properties": {"a": 5}})",
      R"({"properties": {"a": true}})",
      R"({"properties": {"a": {"type": "wat"}}})",
      R"({"properties": {"a": {"$ref": "#/x"}}})",
      R"({"properties": {"a": {"$ref": "#/properties/a"}}})",
      R"({"properties": {"a": {"anyOf": [{"$ref": "#/properties/a"}, {"$ref": "#/properties/a"}]}}})"};
  for (const std::string& schema : schemas) {
    const auto tool =
        ToolDefinition::from_json(nlohmann::ordered_json::parse(R"({"name": "g", "parameters": )" + schema + "}"));
    EXPECT_EQ(tool.types("a").to_json("5"), "5") << schema;
    EXPECT_EQ(tool.types("a").to_json("x"), "\"x\"") << schema;
  }
}

}  // namespace
}  // namespace lily
