// Renderings written out by hand from the description of the format. chat_format_oracle.py compares with the official
// template, where it is at hand.
#include "text/chat_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "support/error.h"
#include "text/chat_format_json.h"
#include "text/tool_call_json.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

std::vector<ChatMessage> messages_from(const char* json) {
  return chat_messages_from_json(Json::parse(json));
}

std::string render(const char* messages, const ChatOptions& options = {}, const char* tools = "null") {
  return plain_text(render_chat(messages_from(messages), tools_from_json(Json::parse(tools)), options).pieces);
}

// The rendering of one call of f with these arguments, from <function=f> to </function>.
std::string render_arguments(const std::string& arguments) {
  ChatMessage message = ChatMessage::of(Role::kAssistant, "");
  message.tool_calls.push_back({"id", "f", arguments});
  const std::vector<ChatMessage> messages = {ChatMessage::of(Role::kUser, "x"), message};
  const std::string text = plain_text(render_chat(messages, {}, {}).pieces);
  const std::size_t begin = text.find("<function=f>\n") + 13;
  return text.substr(begin, text.find("</function>\n</tool_call><|im_end|>") - begin);
}

std::string error_of(const char* messages) {
  try {
    render(messages);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ChatFormat, ThinkingOnAndOff) {
  const char* hello = R"([{"role": "user", "content": "Hello"}])";
  EXPECT_EQ(render(hello), "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n<think>\n");
  EXPECT_EQ(render(hello, {.enable_thinking = false}),
            "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  EXPECT_EQ(render(hello, {.add_generation_prompt = false}), "<|im_start|>user\nHello<|im_end|>\n");
}

TEST(ChatFormat, TrimsEveryWhiteSpaceOfUnicode) {
  EXPECT_EQ(
      render("[{\"role\": \"system\", \"content\": \"\u3000\\u0085 Be brief.\\n\\u001f\"},"
             "{\"role\": \"user\", \"content\": \"\\n\u00a0Hi \\t\u2029\"}]"),
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n");
  // A zero width space is no white space.
  EXPECT_EQ(render("[{\"role\": \"user\", \"content\": \"\u200bHi\"}]", {.add_generation_prompt = false}),
            "<|im_start|>user\n\u200bHi<|im_end|>\n");
}

TEST(ChatFormat, DropsOldReasoningUnlessPreserved) {
  const char* turns = R"([{"role": "user", "content": "1+1?"},
                          {"role": "assistant", "content": "2", "reasoning_content": " easy\n"},
                          {"role": "user", "content": "2+2?"},
                          {"role": "assistant", "content": "4"}])";
  const ChatOptions no_prompt = {.add_generation_prompt = false};
  EXPECT_EQ(render(turns, no_prompt),
            "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n"
            "<|im_start|>assistant\n<think>\n\n</think>\n\n4<|im_end|>\n");
  EXPECT_EQ(render(turns, {.preserve_thinking = true, .add_generation_prompt = false}),
            "<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n<think>\neasy\n</think>\n\n2<|im_end|>\n"
            "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n4<|im_end|>\n");
}

TEST(ChatFormat, FindsReasoningInTheContent) {
  EXPECT_EQ(
      render(R"([{"role": "user", "content": "x"}, {"role": "assistant", "content": "<think>\na\n</think>\n\nb"}])",
             {.add_generation_prompt = false}),
      "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n<think>\na\n</think>\n\nb<|im_end|>\n");
  // Given reasoning_content, the content is left alone.
  EXPECT_EQ(render(R"([{"role": "user", "content": "x"},
                       {"role": "assistant", "content": "</think> closes", "reasoning_content": ""}])",
                   {.add_generation_prompt = false}),
            "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n</think> closes<|im_end|>\n");
}

TEST(ChatFormat, RendersCallsAndGroupsResults) {
  const char* turns = R"([{"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": "Let me see.", "reasoning_content": "two calls", "tool_calls": [
      {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"city": "Paris", "days": 2}}},
      {"id": "2", "type": "function", "function": {"name": "g", "arguments": {}}}]},
    {"role": "tool", "tool_call_id": "1", "content": "{\"c\":21}\n"},
    {"role": "tool", "tool_call_id": "2", "content": [{"type": "text", "text": "ok"}]}])";
  EXPECT_EQ(
      render(turns),
      "<|im_start|>user\nWeather?<|im_end|>\n<|im_start|>assistant\n<think>\ntwo calls\n</think>\n\nLet me see.\n\n"
      "<tool_call>\n<function=f>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n2\n</parameter>\n"
      "</function>\n</tool_call>\n<tool_call>\n<function=g>\n</function>\n</tool_call><|im_end|>\n"
      "<|im_start|>user\n<tool_response>\n{\"c\":21}\n</tool_response>\n<tool_response>\nok\n</tool_response>"
      "<|im_end|>\n<|im_start|>assistant\n<think>\n");
}

TEST(ChatFormat, ToolsStandBeforeTheSystemText) {
  const char* tools =
      R"([{"type": "function", "function": {"name": "f", "parameters": {"minimum": 1e3, "é": [1, null]}}}])";
  const std::string text =
      render(R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}])", {}, tools);
  const std::string begin =
      "<|im_start|>system\n# Tools\n\nYou have access to the following functions:\n\n<tools>\n"
      R"({"type": "function", "function": {"name": "f", "parameters": {"minimum": 1000.0, "é": [1, null]}}})"
      "\n</tools>\n\n";
  const std::string end =
      "\n</IMPORTANT>\n\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n";
  EXPECT_TRUE(text.starts_with(begin)) << text;
  EXPECT_TRUE(text.ends_with(end)) << text;
  // The instructions between them are what the model was trained on: their length and FNV-1a hash in the official
  // format.
  const std::string instructions = text.substr(begin.size(), text.size() - begin.size() - end.size());
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : instructions) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  EXPECT_EQ(instructions.size(), 802U);
  EXPECT_EQ(hash, 0xd2cf0dd8820d9781ULL);
}

TEST(ChatFormat, MergesLeadingSystemAndDeveloperMessages) {
  EXPECT_EQ(render(R"([{"role": "system", "content": "a"}, {"role": "developer", "content": " "},
                       {"role": "developer", "content": "b\n"}, {"role": "user", "content": "Hi"}])"),
            "<|im_start|>system\na\n\nb<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n");
}

TEST(ChatFormat, LaterSystemMessagesStayInTheirPlace) {
  EXPECT_EQ(render(R"([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"},
                       {"role": "system", "content": "late"}, {"role": "user", "content": "x"}])"),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYo<|im_end|>\n<|im_start|>system\nlate<|im_end|>\n"
            "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n<think>\n");
}

TEST(ChatFormat, ServesConversationsWithoutUser) {
  EXPECT_EQ(render(R"([{"role": "system", "content": "You write titles."}])"),
            "<|im_start|>system\nYou write titles.<|im_end|>\n<|im_start|>assistant\n<think>\n");
  EXPECT_EQ(render(R"([{"role": "user", "content": "<tool_response>\n1\n</tool_response>"},
                       {"role": "assistant", "content": "a", "reasoning_content": "kept"}])",
                   {.add_generation_prompt = false}),
            "<|im_start|>user\n<tool_response>\n1\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n<think>\nkept\n</think>\n\na<|im_end|>\n");
}

TEST(ChatFormat, ArgumentsAsTextKeepOrderAndNumbers) {
  EXPECT_EQ(render_arguments(R"({"a":1.0,"b":1e3,"z":0,"a2":"\u00e9\n\"q\"","big":123456789012345678901234567890})"),
            "<parameter=a>\n1.0\n</parameter>\n<parameter=b>\n1e3\n</parameter>\n<parameter=z>\n0\n</parameter>\n"
            "<parameter=a2>\né\n\"q\"\n</parameter>\n<parameter=big>\n123456789012345678901234567890\n</parameter>\n");
  EXPECT_EQ(
      render_arguments("{\"o\" :{\"x\":[1.50,\"\\u0041,:\"] ,\"y\":{}},\"l\":[\n1\n,true ]}"),
      "<parameter=o>\n{\"x\": [1.50, \"A,:\"], \"y\": {}}\n</parameter>\n<parameter=l>\n[1, true]\n</parameter>\n");
  // A name that is given twice has its last value.
  EXPECT_EQ(render_arguments(R"({"a":1,"b":2,"a":3})"),
            "<parameter=a>\n3\n</parameter>\n<parameter=b>\n2\n</parameter>\n");
}

TEST(ChatFormat, ArgumentsThatAreNoObjectStandRaw) {
  for (const char* none : {"", "{}", " { } ", "null", "\n"}) EXPECT_EQ(render_arguments(none), "") << none;
  for (const char* raw : {"[1]", R"({"path": "a.txt", "content": "cut of)", "nonsense", "\"text\"", "{\"a\":}", "3"}) {
    EXPECT_EQ(render_arguments(raw), std::string(raw) + "\n");
  }
}

TEST(ChatFormat, ParsedArgumentsArePrintedAsPythonDoes) {
  const Json numbers = Json::parse("[1.0, 1e3, 1e15, 1e16, 1e-4, 1e-5, -0.0, 5e-324, 0.1, 18446744073709551615, -7]");
  EXPECT_EQ(chat_json(numbers),
            "[1.0, 1000.0, 1000000000000000.0, 1e+16, 0.0001, 1e-05, -0.0, 5e-324, 0.1, 18446744073709551615, -7]");
  EXPECT_EQ(chat_json(Json::parse(R"({"\u0000\u001f\u007f/": "é😀\u2028"})")),
            "{\"\\u0000\\u001f\x7f/\": \"é😀\u2028\"}");
}

TEST(ChatFormat, DeepNestingIsAnErrorNotACrash) {
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  EXPECT_THROW(chat_json(Json::parse(deep)), Error);
  EXPECT_EQ(render_arguments("{\"a\":" + deep + "}"), "<parameter=a>\n" + deep + "\n</parameter>\n");
}

TEST(ChatFormat, ErrorsNameTheMessage) {
  EXPECT_EQ(error_of("[]"), "there are no messages");
  EXPECT_EQ(error_of(R"({"role": "user"})"), "messages: expected an array, found object");
  EXPECT_EQ(error_of(R"(["x"])"), "messages[0]: expected an object, found string");
  EXPECT_EQ(error_of(R"([{"role": "user"}, {"role": "critic"}])"),
            "messages[1].role: found 'critic', expected system, developer, user, assistant or tool");
  EXPECT_EQ(error_of(R"([{"role": "user", "content": 3}])"),
            "messages[0].content: found number, expected a string, null or an array of parts");
  EXPECT_EQ(error_of(R"([{"role": "user", "content": [{"type": "input_audio"}]}])"),
            "messages[0].content[0]: a part of type 'input_audio' without a string 'text'; expected text parts");
  EXPECT_EQ(error_of(R"([{"role": "user"}, {"role": "assistant", "tool_calls": [{"function": {"name": "f",
                        "arguments": [1]}}]}])"),
            "messages[1].tool_calls[0].arguments: found array, expected an object or its JSON text");
  EXPECT_EQ(error_of(R"([{"role": "system", "content": [{"type": "image"}]}, {"role": "user", "content": "x"}])"),
            "a system message contains an image or a video");
}

TEST(ChatFormat, TextNeverBecomesControl) {
  const char* turns =
      R"([{"role": "system", "content": "<|im_start|>"}, {"role": "user", "content": "<|im_end|><think>"},
    {"role": "assistant", "content": "<tool_call>", "reasoning_content": "</think>", "tool_calls": [
      {"function": {"name": "<tool_call>", "arguments": {"</tool_call>": "<|endoftext|>"}}}]},
    {"role": "tool", "content": "</tool_response>"}])";
  const auto tools = tools_from_json(Json::parse(R"([{"name": "<|im_end|>"}])"));
  std::vector<std::string> control;
  for (const Piece& piece : render_chat(messages_from(turns), tools, {}).pieces) {
    if (piece.control) control.push_back(piece.text);
  }
  const std::vector<std::string> expected = {
      "<|im_start|>", "<tool_call>",     "</tool_call>",     "<tool_call>", "</tool_call>", "<|im_end|>",  // tools
      "<|im_start|>", "<|im_end|>",                                                                        // user
      "<|im_start|>", "<think>",         "</think>",         "<tool_call>", "</tool_call>", "<|im_end|>",  // assistant
      "<|im_start|>", "<tool_response>", "</tool_response>", "<|im_end|>",                                 // result
      "<|im_start|>", "<think>"};
  EXPECT_EQ(control, expected);
}

TEST(ChatFormat, CutsAreBeginningsOfTurns) {
  const char* turns = R"([{"role": "system", "content": "s"}, {"role": "user", "content": "first"},
    {"role": "assistant", "content": "a"}, {"role": "user", "content": "second"},
    {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}]},
    {"role": "tool", "content": "1"}])";
  const RenderedChat chat = render_chat(messages_from(turns), {}, {});
  const auto text_from = [&](std::size_t cut) {
    return plain_text(Pieces(chat.pieces.begin() + static_cast<std::ptrdiff_t>(cut), chat.pieces.end()));
  };
  EXPECT_TRUE(text_from(chat.system_end).starts_with("<|im_start|>user\nfirst"));
  EXPECT_TRUE(text_from(chat.last_query_begin).starts_with("<|im_start|>user\nsecond"));
  EXPECT_TRUE(text_from(chat.last_query_end).starts_with("<|im_start|>assistant\n<think>\n\n</think>\n\n<tool_call>"));
  EXPECT_EQ(text_from(chat.reply_begin), "<|im_start|>assistant\n<think>\n");
  EXPECT_FALSE(chat.has_media);
}

TEST(ChatFormat, SampledTurnsAreReplayedWhileTheirReasoningShows) {
  std::vector<ChatMessage> messages = {ChatMessage::of(Role::kUser, "x"), ChatMessage::of(Role::kAssistant, "answer")};
  messages[1].sampled = reply_opening(true);
  append_text(messages[1].sampled, "odd  spacing");
  append_control(messages[1].sampled, "</think>");
  append_text(messages[1].sampled, "answer ");
  EXPECT_EQ(plain_text(render_chat(messages, {}, {.add_generation_prompt = false}).pieces),
            "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n<think>\nodd  spacing</think>answer <|im_end|>\n");
  messages.push_back(ChatMessage::of(Role::kUser, "y"));
  EXPECT_EQ(plain_text(render_chat(messages, {}, {.add_generation_prompt = false}).pieces),
            "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\nanswer<|im_end|>\n<|im_start|>user\ny<|im_end|>\n");
}

TEST(ChatFormat, MediaHavePlaceholders) {
  const auto messages = messages_from(
      R"([{"role": "user", "content": [{"type": "image_url", "image_url": {}}, {"type": "text", "text": "What?"},
                        {"type": "video"}]}])");
  const RenderedChat chat = render_chat(messages, {}, {.add_generation_prompt = false});
  EXPECT_EQ(
      plain_text(chat.pieces),
      "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>What?<|vision_start|><|video_pad|><|vision_end|>"
      "<|im_end|>\n");
  EXPECT_TRUE(chat.has_media);
  EXPECT_EQ(std::count_if(chat.pieces.begin(), chat.pieces.end(), [](const Piece& piece) { return piece.control; }), 8);
}

TEST(ChatFormat, MessagesSurviveJson) {
  const char* turns = R"([{"role":"developer","content":"s"},{"role":"user","content":[{"type":"text","text":"a"},
    {"type":"image"}],"name":"me"},{"role":"assistant","content":null,"reasoning_content":"r","tool_calls":[{"id":"1",
    "type":"function","function":{"name":"f","arguments":"{\"a\": 1e3}"}}]},{"role":"tool","content":"1","tool_call_id":"1"}])";
  EXPECT_EQ(chat_messages_to_json(messages_from(turns)), Json::parse(turns));
}

}  // namespace
}  // namespace lily
