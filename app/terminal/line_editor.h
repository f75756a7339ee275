// Reads one input from a terminal: editing over several lines, history, paste, UTF-8 with wide characters.
//
// Enter ends the input unless continue_input() says that it goes on: after a backslash, and within """ ... """.
// Alt-Enter or Ctrl-J puts in a line break anywhere. A paste is part of one input whatever it contains.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "terminal/edit_buffer.h"
#include "terminal/history.h"
#include "terminal/keys.h"
#include "terminal/signals.h"
#include "terminal/terminal.h"

namespace lily {

/// Whether another line belongs to `input`: it ends in an odd number of backslashes, the last of which becomes a line
/// break, or begins with a """ that its end does not close, and gets a line break.
bool continue_input(std::string& input);
/// A whole input without its """ and the line breaks next to them.
std::string input_text(std::string_view input);

class LineEditor {
 public:
  /// All must outlive the editor.
  LineEditor(Terminal& terminal, History& history, SignalFlags& signals)
      : terminal_(terminal), history_(history), signals_(signals) {}

  enum class Result {
    kInput,
    kInterrupt,  // Ctrl-C; what was typed is dropped
    kEnd         // Ctrl-D on an empty line, or the terminal is gone
  };
  /// Shows `prompt` (after `style`, an escape sequence or nothing) and reads until the input is whole. The history gets
  /// what was typed. The terminal is left waiting.
  Result read(std::string_view prompt, std::string_view style, std::string& input);

 private:
  enum class Step { kOn, kInput, kInterrupt, kEnd };

  Step read_keys();
  Step handle(const Key& key);
  Step enter();
  void edit(const Key& key);
  void browse(bool older);
  void redraw_from_here();
  void refresh();

  Terminal& terminal_;
  History& history_;
  SignalFlags& signals_;
  KeyDecoder keys_;  // type-ahead stays for the next input
  EditBuffer buffer_;
  std::string prompt_;
  std::string style_;
  std::size_t history_at_ = 0;  // entries().size(): the new input
  std::string draft_;           // the new input, while an older one is shown
  std::size_t first_row_ = 0;   // of the layout that is on the screen
  std::size_t cursor_row_ = 0;  // below that one
};

}  // namespace lily
