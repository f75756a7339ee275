// The chat of `lily chat`: reads inputs, does what commands say, shows answers, runs tools.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "chat/chat_input.h"
#include "chat/chat_view.h"
#include "chat/conversation.h"
#include "options.h"
#include "terminal/signals.h"

namespace lily {

struct ChatProgramOptions {
  SamplingOptions sampling;
  std::string system;
  std::string tools = "off";  // off, demo, or a file
  std::string load;           // a conversation to go on with; empty: none
  bool think = true;
  bool preserve_thinking = false;
  std::int64_t max_tokens = 0;  // of one reply; 0: what the context can take
  std::int64_t context = 32768;
};

/// What several replies took together.
struct ReplyTotals {
  std::int64_t replies = 0;
  std::int64_t prompt_tokens = 0;    // of the last prompt
  std::int64_t computed_tokens = 0;  // of all prompts
  std::int64_t generated_tokens = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;

  void add(const ReplyResult& result);
};

class ChatProgram {
 public:
  /// All must outlive the program. Throws Error when a file in the options cannot be read.
  ChatProgram(LoadedModel& model, const ChatProgramOptions& options, ChatInput& input, ChatView& view,
              SignalFlags& signals);

  /// Until the input ends or /quit. False: a turn failed (its error was shown).
  bool run();

 private:
  struct Command;
  static const std::vector<Command>& commands();

  enum class ToolKind { kOff, kDemo, kFile };

  bool turn();
  void guarded(const std::function<void()>& action);
  void command(const std::string& line);
  void answer(std::string text);
  ReplyResult rounds(ReplyTotals& totals);
  void show_end(const ReplyResult& last, const ReplyTotals& totals);
  ReplyResult reply();
  bool run_tools();

  void help();
  void set_thinking(bool thinking);
  void set_system(const std::string& text);
  void set_tools(const std::string& what);
  void load(const std::string& file);
  void save(const std::string& file);
  void reset();
  void stats();

  LoadedModel& model_;
  ChatProgramOptions options_;
  ChatInput& input_;
  ChatView& view_;
  SignalFlags& signals_;
  Conversation conversation_;
  ToolKind tool_kind_ = ToolKind::kOff;
  bool ended_ = false;
  bool failed_ = false;
  int interrupts_ = 0;  // Ctrl-C at the prompt, one after the other
  ReplyTotals totals_;
};

}  // namespace lily
