#include "chat/chat_input.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>

#include "terminal/history.h"
#include "terminal/line_editor.h"
#include "terminal/terminal.h"
#include "text/unicode.h"

namespace lily {
namespace {

class EditedInput : public ChatInput {
 public:
  EditedInput(SignalFlags& signals, bool style)
      : history_(History::default_file()), editor_(terminal_, history_, signals), style_(style ? "\x1b[1m" : "") {}

  Result read(std::string_view prompt, std::string& input) override {
    switch (editor_.read(prompt, style_, input)) {
      case LineEditor::Result::kInput:
        return Result::kInput;
      case LineEditor::Result::kInterrupt:
        return Result::kInterrupt;
      case LineEditor::Result::kEnd:
        break;
    }
    return Result::kEnd;
  }

 private:
  Terminal terminal_;
  History history_;
  LineEditor editor_;
  std::string style_;
};

class LineInput : public ChatInput {
 public:
  Result read(std::string_view prompt, std::string& input) override {
    const bool shows_prompt = isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1;
    input.clear();
    for (std::string line;;) {
      if (shows_prompt) {
        std::cerr << prompt << std::flush;
      }
      if (!std::getline(std::cin, line)) break;
      if (line.ends_with('\r')) line.pop_back();
      input += replace_invalid_utf8(line);
      if (!continue_input(input)) return Result::kInput;
    }
    // What the end of the input left open is an input all the same.
    return input.empty() ? Result::kEnd : Result::kInput;
  }
};

}  // namespace

std::unique_ptr<ChatInput> make_chat_input(SignalFlags& signals, bool style) {
  if (Terminal::is_interactive()) return std::make_unique<EditedInput>(signals, style);
  return std::make_unique<LineInput>();
}

}  // namespace lily
