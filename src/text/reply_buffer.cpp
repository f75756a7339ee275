#include "text/reply_buffer.h"

#include <algorithm>

namespace lily {
namespace {

constexpr std::size_t kLongestSpace = 256;
constexpr std::size_t kLongestName = 256;

}  // namespace

void ReplyBuffer::push(std::string_view text, bool control) {
  if (text.empty()) return;
  if (begin_ > size()) {
    text_.erase(0, begin_);
    marks_.erase(0, begin_);
    begin_ = 0;
  }
  text_ += text;
  marks_.append(text.size(), control ? kControlRest : kText);
  if (control) marks_[marks_.size() - text.size()] = kControlBegin;
}

std::string_view ReplyBuffer::control_at(std::size_t offset) const {
  const std::size_t begin = begin_ + offset;
  if (begin >= text_.size() || marks_[begin] != kControlBegin) return {};
  std::size_t end = begin + 1;
  while (end < marks_.size() && marks_[end] == kControlRest) ++end;
  return std::string_view(text_).substr(begin, end - begin);
}

char ReplyBuffer::text_at(std::size_t offset) const {
  const std::size_t at = begin_ + offset;
  return at < text_.size() && marks_[at] == kText ? text_[at] : '\0';
}

std::size_t ReplyBuffer::run(std::string_view stops) const {
  const std::size_t stop = std::min(text().find_first_of(stops), size());
  return std::min(std::string_view(marks_).substr(begin_, stop).find(kControlBegin), stop);
}

std::string ReplyBuffer::take(std::size_t size) {
  std::string taken = text_.substr(begin_, size);
  begin_ += size;
  return taken;
}

Match either(Match a, Match b) {
  return std::max(a, b);
}

Scan& Scan::text(std::string_view literal) {
  if (match_ != Match::kYes) return *this;
  for (const char c : literal) {
    if (offset_ == buffer_->size() && !buffer_->ended()) return then(Match::kUnknown);
    if (buffer_->text_at(offset_) != c) return then(Match::kNo);
    ++offset_;
  }
  return *this;
}

Scan& Scan::control(std::string_view token) {
  if (match_ != Match::kYes) return *this;
  if (offset_ == buffer_->size() && !buffer_->ended()) return then(Match::kUnknown);
  if (buffer_->control_at(offset_) != token) return then(Match::kNo);
  offset_ += token.size();
  return *this;
}

Scan& Scan::space() {
  if (match_ != Match::kYes) return *this;
  const std::size_t begin = offset_;
  while (offset_ - begin < kLongestSpace) {
    const char c = buffer_->text_at(offset_);
    if (c != ' ' && c != '\n' && c != '\r' && c != '\t') break;
    ++offset_;
  }
  return *this;
}

Scan& Scan::end_of_reply() {
  if (match_ != Match::kYes || offset_ != buffer_->size()) return then(Match::kNo);
  return then(buffer_->ended() ? Match::kYes : Match::kUnknown);
}

Scan& Scan::tag(std::string_view opening, std::string& name) {
  if (!text(opening).matched()) return *this;
  std::size_t end = offset_;
  while (buffer_->text_at(end) != '>') {
    if (end == buffer_->size() && !buffer_->ended()) return then(Match::kUnknown);
    const char c = buffer_->text_at(end);
    if (c == '\0' || c == '\n' || c == '<' || end - offset_ == kLongestName) return then(Match::kNo);
    ++end;
  }
  std::string_view found = buffer_->text().substr(offset_, end - offset_);
  const auto is_padding = [](char c) { return c == ' ' || c == '"' || c == '\''; };
  while (!found.empty() && is_padding(found.front())) found.remove_prefix(1);
  while (!found.empty() && is_padding(found.back())) found.remove_suffix(1);
  if (found.empty()) return then(Match::kNo);
  name = found;
  offset_ = end + 1;
  return *this;
}

Scan& Scan::then(Match match) {
  if (match_ == Match::kYes) match_ = match;
  return *this;
}

}  // namespace lily
