#include "terminal/line_editor.h"

#include <fmt/format.h>

#include <algorithm>

#include "terminal/graphemes.h"
#include "terminal/layout.h"

namespace lily {
namespace {

constexpr std::string_view kQuotes = "\"\"\"";

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\n";
  text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
  return text.substr(0, text.find_last_not_of(kSpaces) + 1);
}

bool is_closed(std::string_view quoted) {
  return quoted.size() >= 2 * kQuotes.size() && quoted.ends_with(kQuotes);
}

}  // namespace

bool continue_input(std::string& input) {
  const std::string_view text = trimmed(input);
  if (text.starts_with(kQuotes)) {
    if (is_closed(text)) return false;
    input += '\n';
    return true;
  }
  const std::size_t backslashes = input.size() - (input.find_last_not_of('\\') + 1);
  if (backslashes % 2 == 0) return false;
  input.back() = '\n';
  return true;
}

std::string input_text(std::string_view input) {
  const std::string_view text = trimmed(input);
  if (!text.starts_with(kQuotes) || !is_closed(text)) return std::string(input);
  std::string_view inside = text.substr(kQuotes.size(), text.size() - 2 * kQuotes.size());
  if (inside.starts_with('\n')) inside.remove_prefix(1);
  if (inside.ends_with('\n')) inside.remove_suffix(1);
  return std::string(inside);
}

LineEditor::Result LineEditor::read(std::string_view prompt, std::string_view style, std::string& input) {
  prompt_ = prompt;
  style_ = style;
  buffer_.set({});
  draft_.clear();
  history_at_ = history_.entries().size();
  redraw_from_here();
  terminal_.set_mode(Terminal::Mode::kEditing);
  const Step step = read_keys();
  buffer_.set(buffer_.text());  // the cursor goes to the end
  refresh();
  terminal_.write(step == Step::kInterrupt ? "^C\r\n" : "\r\n");
  terminal_.set_mode(Terminal::Mode::kWaiting);
  input = buffer_.text();
  if (step != Step::kInput) return step == Step::kInterrupt ? Result::kInterrupt : Result::kEnd;
  history_.add(input);
  return Result::kInput;
}

LineEditor::Step LineEditor::read_keys() {
  constexpr int kEscapeTimeout = 50;  // ms after which an ESC is a key of its own
  bool last = false;
  for (;;) {
    while (const auto key = keys_.next(last)) {
      const Step step = handle(*key);
      if (step != Step::kOn) return step;
    }
    refresh();
    std::string bytes;
    const bool is_whole = keys_.empty() || keys_.in_paste();
    const Terminal::Read read = terminal_.read(bytes, is_whole ? -1 : kEscapeTimeout, signals_);
    if (read == Terminal::Read::kEnd || signals_.terminated()) return Step::kEnd;
    last = read == Terminal::Read::kTimeout;
    keys_.push(bytes);
  }
}

LineEditor::Step LineEditor::handle(const Key& key) {
  switch (key.kind) {
    case Key::Kind::kEnter:
      return enter();
    case Key::Kind::kInterrupt:
      return Step::kInterrupt;
    case Key::Kind::kEndOfInput:
      if (buffer_.text().empty()) return Step::kEnd;
      buffer_.erase_right();
      break;
    case Key::Kind::kSuspend:
      terminal_.write("\r\n");
      terminal_.suspend();
      redraw_from_here();
      break;
    case Key::Kind::kClearScreen:
      terminal_.write("\x1b[H\x1b[2J");
      redraw_from_here();
      break;
    case Key::Kind::kUp:
      if (!buffer_.up()) browse(true);
      break;
    case Key::Kind::kDown:
      if (!buffer_.down()) browse(false);
      break;
    case Key::Kind::kHistoryBack:
      browse(true);
      break;
    case Key::Kind::kHistoryForward:
      browse(false);
      break;
    default:
      edit(key);
  }
  return Step::kOn;
}

void LineEditor::edit(const Key& key) {
  switch (key.kind) {
    case Key::Kind::kText:
    case Key::Kind::kPaste:
      buffer_.insert(key.text);
      break;
    case Key::Kind::kNewline:
      buffer_.insert("\n");
      break;
    case Key::Kind::kBackspace:
      buffer_.erase_left();
      break;
    case Key::Kind::kDelete:
      buffer_.erase_right();
      break;
    case Key::Kind::kLeft:
      buffer_.left();
      break;
    case Key::Kind::kRight:
      buffer_.right();
      break;
    case Key::Kind::kWordLeft:
      buffer_.word_left();
      break;
    case Key::Kind::kWordRight:
      buffer_.word_right();
      break;
    case Key::Kind::kLineBegin:
      buffer_.line_begin();
      break;
    case Key::Kind::kLineEnd:
      buffer_.line_end();
      break;
    case Key::Kind::kKillToEnd:
      buffer_.kill_to_line_end();
      break;
    case Key::Kind::kKillToBegin:
      buffer_.kill_to_line_begin();
      break;
    case Key::Kind::kKillWordLeft:
      buffer_.kill_word_left();
      break;
    case Key::Kind::kKillWordRight:
      buffer_.kill_word_right();
      break;
    case Key::Kind::kYank:
      buffer_.yank();
      break;
    default:
      break;
  }
}

LineEditor::Step LineEditor::enter() {
  std::string text = buffer_.text();
  if (!continue_input(text)) return Step::kInput;
  buffer_.set(std::move(text));
  return Step::kOn;
}

void LineEditor::browse(bool older) {
  const auto& entries = history_.entries();
  if (older ? history_at_ == 0 : history_at_ == entries.size()) return;
  if (history_at_ == entries.size()) draft_ = buffer_.text();
  history_at_ = older ? history_at_ - 1 : history_at_ + 1;
  buffer_.set(history_at_ == entries.size() ? draft_ : entries[history_at_]);
}

void LineEditor::redraw_from_here() {
  first_row_ = 0;
  cursor_row_ = 0;
}

// Draws the rows around the cursor that fit on the screen.
void LineEditor::refresh() {
  const Terminal::Size size = terminal_.size();
  const int indent = display_width(prompt_);
  const Layout layout = lay_out(buffer_.text(), buffer_.cursor(), size.columns, indent);
  const auto height = static_cast<std::size_t>(size.rows);
  first_row_ = std::min(first_row_, layout.cursor_row);
  if (layout.cursor_row >= first_row_ + height) first_row_ = layout.cursor_row - height + 1;
  const std::size_t end = std::min(first_row_ + height, layout.rows.size());

  std::string out = "\x1b[?25l\r";
  if (cursor_row_ > 0) out += fmt::format("\x1b[{}A", cursor_row_);
  out += "\x1b[J";
  for (std::size_t row = first_row_; row < end; ++row) {
    if (row > first_row_) out += "\r\n";
    if (row == 0) out += style_ + prompt_ + (style_.empty() ? "" : "\x1b[0m");
    out += layout.rows[row];
  }
  if (end - 1 > layout.cursor_row) out += fmt::format("\x1b[{}A", end - 1 - layout.cursor_row);
  out += '\r';
  if (layout.cursor_column > 0) out += fmt::format("\x1b[{}C", layout.cursor_column);
  out += "\x1b[?25h";
  terminal_.write(out);
  cursor_row_ = layout.cursor_row - first_row_;
}

}  // namespace lily
