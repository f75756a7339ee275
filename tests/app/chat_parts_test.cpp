// Files, tools and text on the way to the terminal; chat_terminal.py tests the whole program.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "chat/chat_file.h"
#include "chat/chat_view.h"
#include "chat/demo_tools.h"
#include "support/error.h"

namespace lily {
namespace {

TEST(Visible, NothingSteersTheTerminal) {
  EXPECT_EQ(visible("a\tb\nc é"), "a\tb\nc é");
  EXPECT_EQ(visible("\x1b[31mred\x07\r\x7f"), "^[[31mred^G^M^?");
  EXPECT_EQ(visible(std::string_view("\0", 1)), "^@");
  EXPECT_EQ(visible("\xc2\x9b"
                    "31m"),
            "\ufffd"
            "31m");
}

std::string run(const char* name, const char* arguments) {
  return run_demo_tool({"", name, arguments});
}

TEST(DemoTools, Run) {
  EXPECT_EQ(demo_tools().size(), 4U);
  EXPECT_EQ(run("add", R"({"a": 12, "b": 30})"), "42");
  EXPECT_EQ(run("add", R"({"a": 0.5, "b": 1})"), "1.5");
  EXPECT_EQ(run("add", R"({"a": 1e308, "b": 1e308})"), "null");
  EXPECT_EQ(run("count_words", R"({"text": " one  two\nthree "})"), "3");
  EXPECT_EQ(run("roll_dice", R"({"sides": 1})"), "1");
  EXPECT_FALSE(run("get_time", "{}").starts_with("error"));
}

TEST(DemoTools, WrongCallsAreAnswered) {
  EXPECT_EQ(run("add", R"({"a": "x"})"), "error: 'a' must be a number");
  EXPECT_EQ(run("roll_dice", R"({"sides": 1e300})"), "error: 'sides' must be between 1 and 1000000");
  EXPECT_EQ(run("shell", "{}"), "error: there is no tool 'shell'");
  EXPECT_TRUE(run("add", "not json").starts_with("error: "));
}

class ChatFileTest : public testing::Test {
 public:
  ChatFileTest() : file_(std::filesystem::temp_directory_path() / ("lily_chat_" + std::to_string(::getpid()))) {}
  ~ChatFileTest() override { std::filesystem::remove(file_); }

 protected:
  std::string error_of(const char* content) {
    std::ofstream(file_) << content;
    try {
      load_chat(file_);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  std::filesystem::path file_;
};

TEST_F(ChatFileTest, ComesBack) {
  ChatFile chat;
  chat.messages = {ChatMessage::of(Role::kSystem, "s"), ChatMessage::of(Role::kUser, "é\n\"")};
  chat.messages.push_back(ChatMessage::of(Role::kAssistant, "a"));
  chat.messages.back().reasoning_content = "r";
  chat.messages.back().tool_calls = {{"1", "add", R"({"a": 1e3})"}};
  chat.tools = demo_tools();
  save_chat(file_, chat);
  const ChatFile again = load_chat(file_);
  ASSERT_EQ(again.messages.size(), 3U);
  EXPECT_EQ(again.messages[1].text(), "é\n\"");
  EXPECT_EQ(again.messages[2].reasoning_content, "r");
  EXPECT_EQ(again.messages[2].tool_calls[0].arguments, R"({"a": 1e3})");
  ASSERT_EQ(again.tools.size(), 4U);
  EXPECT_EQ(again.tools[0].json, chat.tools[0].json);
}

TEST_F(ChatFileTest, ErrorsNameTheFile) {
  EXPECT_TRUE(error_of("{").starts_with(file_.string() + ": not valid JSON"));
  EXPECT_EQ(error_of("{}"), file_.string() + ": found no messages");
  EXPECT_TRUE(error_of(R"([{"role": "x"}])").starts_with(file_.string() + ": messages[0].role: found 'x'"));
  EXPECT_THROW(load_chat(file_ / "missing"), Error);
  EXPECT_THROW(load_chat(std::filesystem::temp_directory_path()), Error);
  EXPECT_THROW(save_chat(file_ / "in a file", {}), Error);
}

}  // namespace
}  // namespace lily
