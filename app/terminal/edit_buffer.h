// The text in a line editor and its cursor. Movements are by what a person sees as one character; the text may have
// several lines.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lily {

class EditBuffer {
 public:
  const std::string& text() const { return text_; }
  std::size_t cursor() const { return cursor_; }  // a byte offset

  void set(std::string text);  // the cursor goes to its end
  void insert(std::string_view text);

  void left();
  void right();
  void word_left() { cursor_ = word_begin(); }
  void word_right() { cursor_ = word_end(); }
  void line_begin();
  void line_end();
  /// To the same column of the line above or below; false when there is none.
  bool up();
  bool down();

  void erase_left();
  void erase_right();
  // What these take away can be put back by yank().
  void kill_to_line_end();
  void kill_to_line_begin();
  void kill_word_left() { kill(word_begin(), cursor_); }
  void kill_word_right() { kill(cursor_, word_end()); }
  void yank() { insert(killed_); }

 private:
  std::size_t line_begin_of(std::size_t offset) const;
  std::size_t line_end_of(std::size_t offset) const;
  std::size_t word_begin() const;
  std::size_t word_end() const;
  void move_to_column(std::size_t line_begin, int column);
  void kill(std::size_t begin, std::size_t end);

  std::string text_;
  std::size_t cursor_ = 0;
  std::string killed_;
};

}  // namespace lily
