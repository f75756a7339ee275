// Turns are found again whatever the client changed that nobody sees, and only then.
#include "server/replay_memory.h"

#include <gtest/gtest.h>

namespace lily {
namespace {

ChatMessage user(const std::string& text) {
  return ChatMessage::of(Role::kUser, text);
}

ChatMessage assistant(const std::string& text, std::vector<ToolCall> calls = {}) {
  ChatMessage message = ChatMessage::of(Role::kAssistant, text);
  message.tool_calls = std::move(calls);
  return message;
}

Pieces sampled(const std::string& text) {
  return {{.text = text, .tokens = {1, 2, 3}}};
}

std::string recalled(ReplayMemory& memory, std::vector<ChatMessage> messages, std::size_t turn) {
  memory.recall(messages);
  return messages[turn].sampled.empty() ? "" : messages[turn].sampled.front().text;
}

TEST(ReplayMemory, FindsATurnWithoutItsReasoning) {
  ReplayMemory memory(1 << 20);
  ChatMessage said = assistant("Hello.");
  said.reasoning_content = "They greet me.";
  memory.remember(std::vector{user("Hi")}, said, sampled("exact"));
  EXPECT_EQ(recalled(memory, {user("Hi"), assistant("Hello."), user("Bye")}, 1), "exact");
  EXPECT_EQ(recalled(memory, {user("Hi"), assistant(" Hello.\n")}, 1), "exact");
}

TEST(ReplayMemory, NumbersMayBeWrittenAsJavaScriptDoes) {
  ReplayMemory memory(1 << 20);
  memory.remember(
      std::vector{user("Hi")},
      assistant("", {{"call_1", "f", R"({"a": [1.0, 1e3, -0.0, 12345678901234567890], "b": {"c": 0.10}})"}}),
      sampled("exact"));
  const auto sent = R"({"b":{"c":0.1},"a":[1,1000,0,12345678901234567000]})";
  EXPECT_EQ(recalled(memory, {user("Hi"), assistant("", {{"call_1", "f", sent}})}, 1), "exact");
  const auto other = R"({"b":{"c":0.1},"a":[1,1000,0,12345678901234500000]})";
  EXPECT_EQ(recalled(memory, {user("Hi"), assistant("", {{"call_1", "f", other}})}, 1), "");
}

TEST(ReplayMemory, ArgumentsMayBeSpelledAnew) {
  ReplayMemory memory(1 << 20);
  memory.remember(std::vector{user("Hi")}, assistant("", {{"call_1", "f", R"({"a": 1, "b": [true, "x"]})"}}),
                  sampled("exact"));
  const auto with = [](const std::string& name, const std::string& arguments) {
    return std::vector{user("Hi"), assistant("", {{"other", name, arguments}})};
  };
  EXPECT_EQ(recalled(memory, with("f", R"({"b":[true,"x"],"a":1})"), 1), "exact");
  EXPECT_EQ(recalled(memory, with("f", R"({"b":[true,"x"],"a":2})"), 1), "");
  EXPECT_EQ(recalled(memory, with("g", R"({"a": 1, "b": [true, "x"]})"), 1), "");
  EXPECT_EQ(recalled(memory, with("f", std::string(1000000, '[') + std::string(1000000, ']')), 1), "");
}

TEST(ReplayMemory, AnotherConversationIsAnotherTurn) {
  ReplayMemory memory(1 << 20);
  memory.remember(std::vector{user("Hi")}, assistant("Hello."), sampled("exact"));
  EXPECT_EQ(recalled(memory, {user("Hi!"), assistant("Hello.")}, 1), "");
  EXPECT_EQ(recalled(memory, {user("Hi"), assistant("Hello")}, 1), "");
  EXPECT_EQ(recalled(memory, {user("Hi"), user("Hello.")}, 1), "");
  EXPECT_EQ(recalled(memory, {user("H"), user("i"), assistant("Hello.")}, 2), "");
  EXPECT_EQ(recalled(memory, {ChatMessage::of(Role::kSystem, "Hi"), assistant("Hello.")}, 1), "");
}

TEST(ReplayMemory, TheLongestUnusedGoFirst) {
  ReplayMemory memory(2 * (sizeof(Piece) + 1 + 3 * sizeof(std::int32_t)));  // room for two turns
  memory.remember(std::vector{user("1")}, assistant("a"), sampled("1"));
  memory.remember(std::vector{user("2")}, assistant("a"), sampled("2"));
  EXPECT_EQ(recalled(memory, {user("1"), assistant("a")}, 1), "1");
  memory.remember(std::vector{user("3")}, assistant("a"), sampled("3"));
  EXPECT_EQ(recalled(memory, {user("1"), assistant("a")}, 1), "1");
  EXPECT_EQ(recalled(memory, {user("2"), assistant("a")}, 1), "");
  EXPECT_EQ(recalled(memory, {user("3"), assistant("a")}, 1), "3");
  memory.remember(std::vector{user("3")}, assistant("a"), sampled("4"));
  EXPECT_EQ(recalled(memory, {user("3"), assistant("a")}, 1), "4");
}

}  // namespace
}  // namespace lily
