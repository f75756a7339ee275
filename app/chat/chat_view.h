// Shows a conversation. On a terminal thoughts are dimmed and notes stand between the answers; elsewhere standard
// output gets nothing but the model's words (thoughts between <think> and </think>, calls as "-> name arguments",
// results as
// "<- result"), without escape codes, and notes go to standard error.
#pragma once

#include <string>
#include <string_view>

#include "text/reply_parser.h"

namespace lily {

class ChatView {
 public:
  /// `terminal`: standard output is one; `style`: it may be coloured.
  ChatView(bool terminal, bool style) : terminal_(terminal), style_(style) {}

  void show(const ReplyEvent& event);
  void show_tool_result(std::string_view text);
  /// After the last event of a turn, or between the rounds of one.
  void end_reply();

  /// Something about the conversation rather than of it.
  void note(std::string_view text);
  void error(std::string_view message, std::string_view hint);

  bool is_terminal() const { return terminal_; }

 private:
  enum class Section { kNone, kReasoning, kContent, kCall };

  void enter(Section section);
  void put(std::string_view text);
  void put_style(std::string_view code);

  bool terminal_;
  bool style_;
  Section section_ = Section::kNone;
  bool at_line_begin_ = true;
};

/// `text` with control characters other than \n and \t made visible, so that what a model or a file says cannot steer
/// the terminal.
std::string visible(std::string_view text);

}  // namespace lily
