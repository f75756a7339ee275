// Each function is one alternative of the pattern, tried in the pattern's order:
//
//   (?i:'s|'t|'re|'ve|'m|'ll|'d)             contraction_end
//   [^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+          skip_letters, after at most one other character
//   \p{N}                                    one character
//    ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*           skip_symbols, after at most one space
//   \s*[\r\n]+  |  \s+(?!\S)  |  \s+         space_end
#include "text/split.h"

namespace lily {
namespace {

bool is_newline(char32_t c) {
  return c == '\r' || c == '\n';
}
bool is_letter_or_mark(CharClass kind) {
  return kind == CharClass::kLetter || kind == CharClass::kMark;
}

}  // namespace

WordSplitter::Char WordSplitter::char_at(std::size_t at) const {
  if (at >= text_.size()) return {0, CharClass::kSpace, at};
  const auto byte = static_cast<unsigned char>(text_[at]);
  if (byte < 0x80) return {byte, classes_(byte), at + 1};
  const Utf8Char c = decode_utf8(text_, at);
  return {c.code_point, classes_(c.code_point), at + c.length};
}

std::size_t WordSplitter::contraction_end(std::size_t at) const {
  constexpr char32_t kLongS = 0x17F;  // folds to s, as the pattern's (?i:) does
  if (text_[at] != '\'' || at + 1 >= text_.size()) return at;
  const auto lower = [&](std::size_t i) { return i < text_.size() ? static_cast<char>(text_[i] | 0x20) : '\0'; };
  const char first = lower(at + 1);
  const char second = lower(at + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  if ((first == 'r' || first == 'v') && second == 'e') return at + 3;
  if (first == 'l' && second == 'l') return at + 3;
  const Char c = char_at(at + 1);
  return c.code_point == kLongS ? c.end : at;
}

std::size_t WordSplitter::skip_letters(std::size_t at) const {
  for (Char c = char_at(at); is_letter_or_mark(c.kind); c = char_at(at)) at = c.end;
  return at;
}

std::size_t WordSplitter::skip_symbols(std::size_t at) const {
  for (Char c = char_at(at); c.kind == CharClass::kOther; c = char_at(at)) at = c.end;
  return at;
}

std::size_t WordSplitter::space_end(std::size_t at) const {
  std::size_t last = at;         // where the last white space begins
  std::size_t newline_end = at;  // after the last line end
  std::size_t end = at;
  for (Char c = char_at(end); c.kind == CharClass::kSpace && c.end > end; c = char_at(end)) {
    last = end;
    end = c.end;
    if (is_newline(c.code_point)) newline_end = end;
  }
  if (newline_end > at) return newline_end;
  // The last one before a word belongs to what follows, unless it is the only one.
  return end == text_.size() || last == at ? end : last;
}

std::size_t WordSplitter::word_end(std::size_t at) const {
  if (const std::size_t end = contraction_end(at); end > at) return end;
  const Char c = char_at(at);
  if (c.kind == CharClass::kLetter || c.kind == CharClass::kMark) return skip_letters(c.end);
  if (c.kind == CharClass::kNumber) return c.end;
  if (!is_newline(c.code_point)) {
    if (const std::size_t end = skip_letters(c.end); end > c.end) return end;
  }
  const std::size_t symbols = c.code_point == ' ' ? c.end : at;
  std::size_t end = skip_symbols(symbols);
  if (end == symbols) return space_end(at);
  while (end < text_.size() && is_newline(static_cast<unsigned char>(text_[end]))) ++end;
  return end;
}

std::string_view WordSplitter::next() {
  const std::size_t begin = at_;
  if (begin < text_.size()) at_ = word_end(begin);
  return text_.substr(begin, at_ - begin);
}

}  // namespace lily
