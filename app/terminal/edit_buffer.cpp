#include "terminal/edit_buffer.h"

#include <algorithm>
#include <utility>

#include "terminal/graphemes.h"

namespace lily {
namespace {

bool is_word_byte(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

}  // namespace

void EditBuffer::set(std::string text) {
  text_ = std::move(text);
  cursor_ = text_.size();
}

void EditBuffer::insert(std::string_view text) {
  text_.insert(cursor_, text);
  cursor_ += text.size();
}

void EditBuffer::left() {
  if (cursor_ > 0) cursor_ = cluster_before(text_, cursor_);
}

void EditBuffer::right() {
  if (cursor_ < text_.size()) cursor_ += cluster_size(text_, cursor_);
}

void EditBuffer::line_begin() {
  cursor_ = line_begin_of(cursor_);
}

void EditBuffer::line_end() {
  cursor_ = line_end_of(cursor_);
}

bool EditBuffer::up() {
  const std::size_t begin = line_begin_of(cursor_);
  if (begin == 0) return false;
  const int column = display_width(std::string_view(text_).substr(begin, cursor_ - begin));
  move_to_column(line_begin_of(begin - 1), column);
  return true;
}

bool EditBuffer::down() {
  const std::size_t begin = line_begin_of(cursor_);
  const std::size_t end = line_end_of(cursor_);
  if (end == text_.size()) return false;
  const int column = display_width(std::string_view(text_).substr(begin, cursor_ - begin));
  move_to_column(end + 1, column);
  return true;
}

void EditBuffer::erase_left() {
  const std::size_t end = cursor_;
  left();
  text_.erase(cursor_, end - cursor_);
}

void EditBuffer::erase_right() {
  if (cursor_ < text_.size()) text_.erase(cursor_, cluster_size(text_, cursor_));
}

void EditBuffer::kill_to_line_end() {
  const std::size_t end = line_end_of(cursor_);
  kill(cursor_, end == cursor_ ? std::min(end + 1, text_.size()) : end);
}

void EditBuffer::kill_to_line_begin() {
  kill(line_begin_of(cursor_), cursor_);
}

std::size_t EditBuffer::line_begin_of(std::size_t offset) const {
  return offset == 0 ? 0 : text_.rfind('\n', offset - 1) + 1;
}

std::size_t EditBuffer::line_end_of(std::size_t offset) const {
  return std::min(text_.find('\n', offset), text_.size());
}

std::size_t EditBuffer::word_begin() const {
  std::size_t at = cursor_;
  while (at > 0 && !is_word_byte(text_[at - 1])) --at;
  while (at > 0 && is_word_byte(text_[at - 1])) --at;
  return at;
}

std::size_t EditBuffer::word_end() const {
  std::size_t at = cursor_;
  while (at < text_.size() && !is_word_byte(text_[at])) ++at;
  while (at < text_.size() && is_word_byte(text_[at])) ++at;
  return at;
}

void EditBuffer::move_to_column(std::size_t line_begin, int column) {
  cursor_ = line_begin;
  const std::size_t end = line_end_of(cursor_);
  for (int at = 0; cursor_ < end;) {
    const std::size_t size = cluster_size(text_, cursor_);
    at += glyph_of(std::string_view(text_).substr(cursor_, size)).width;
    if (at > column) break;
    cursor_ += size;
  }
}

void EditBuffer::kill(std::size_t begin, std::size_t end) {
  if (begin == end) return;
  killed_ = text_.substr(begin, end - begin);
  text_.erase(begin, end - begin);
  cursor_ = begin;
}

}  // namespace lily
