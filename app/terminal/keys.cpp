#include "terminal/keys.h"

#include <algorithm>
#include <array>
#include <utility>

#include "text/unicode.h"

namespace lily {
namespace {

using Kind = Key::Kind;

Kind control_key(char byte) {
  switch (byte) {
    case 'A' - '@':
      return Kind::kLineBegin;
    case 'B' - '@':
      return Kind::kLeft;
    case 'C' - '@':
      return Kind::kInterrupt;
    case 'D' - '@':
      return Kind::kEndOfInput;
    case 'E' - '@':
      return Kind::kLineEnd;
    case 'F' - '@':
      return Kind::kRight;
    case 'H' - '@':
    case '\x7f':
      return Kind::kBackspace;
    case 'J' - '@':
      return Kind::kNewline;
    case 'K' - '@':
      return Kind::kKillToEnd;
    case 'L' - '@':
      return Kind::kClearScreen;
    case 'M' - '@':
      return Kind::kEnter;
    case 'N' - '@':
      return Kind::kHistoryForward;
    case 'P' - '@':
      return Kind::kHistoryBack;
    case 'U' - '@':
      return Kind::kKillToBegin;
    case 'W' - '@':
      return Kind::kKillWordLeft;
    case 'Y' - '@':
      return Kind::kYank;
    case 'Z' - '@':
      return Kind::kSuspend;
    default:
      return Kind::kUnknown;
  }
}

Kind alt_key(char byte) {
  switch (byte) {
    case 'b':
      return Kind::kWordLeft;
    case 'f':
      return Kind::kWordRight;
    case 'd':
      return Kind::kKillWordRight;
    case '\r':
    case '\n':
      return Kind::kNewline;
    case '\x7f':
    case '\b':
      return Kind::kKillWordLeft;
    default:
      return Kind::kUnknown;
  }
}

// After ESC [ or ESC O, without modifiers and final '~': "A", "1", "1;5C" is looked up as "C" with a modifier.
Kind sequence_key(std::string_view parameters, char final) {
  const bool by_word = parameters.ends_with(";5") || parameters.ends_with(";3");  // Ctrl or Alt
  switch (final) {
    case 'A':
      return Kind::kUp;
    case 'B':
      return Kind::kDown;
    case 'C':
      return by_word ? Kind::kWordRight : Kind::kRight;
    case 'D':
      return by_word ? Kind::kWordLeft : Kind::kLeft;
    case 'F':
      return Kind::kLineEnd;
    case 'H':
      return Kind::kLineBegin;
    case 'M':
      return Kind::kEnter;  // of a keypad
    case 'u':
      return parameters.starts_with("13;") ? Kind::kNewline : Kind::kUnknown;
    case '~':
      break;
    default:
      return Kind::kUnknown;
  }
  const std::string_view number = parameters.substr(0, parameters.find(';'));
  if (number == "1" || number == "7") return Kind::kLineBegin;
  if (number == "4" || number == "8") return Kind::kLineEnd;
  if (number == "3") return by_word ? Kind::kKillWordRight : Kind::kDelete;
  return Kind::kUnknown;
}

}  // namespace

Key KeyDecoder::take(std::size_t size, Kind kind) {
  Key key{kind, {}};
  if (kind == Kind::kText) key.text = replace_invalid_utf8(std::string_view(bytes_).substr(0, size));
  bytes_.erase(0, size);
  return key;
}

std::optional<Key> KeyDecoder::next(bool last) {
  if (bytes_.empty()) return std::nullopt;
  const auto is_text = [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != '\x7f'; };
  if (bytes_.front() == '\x1b') return in_paste() ? paste() : escape(last);
  if (bytes_.front() == '\t') {
    bytes_.erase(0, 1);
    return Key{Kind::kText, "\t"};
  }
  if (!is_text(bytes_.front())) return take(1, control_key(bytes_.front()));
  std::size_t size = 0;
  while (size < bytes_.size() && is_text(bytes_[size])) {
    const Utf8Char character = decode_utf8(bytes_, size);
    if (character.state == Utf8State::kIncomplete && !last) break;
    size += std::max<std::size_t>(character.length, 1);
  }
  if (size == 0) return std::nullopt;
  return take(size, Kind::kText);
}

std::optional<Key> KeyDecoder::escape(bool last) {
  if (bytes_.size() == 1) return last ? std::optional(take(1, Kind::kUnknown)) : std::nullopt;
  if (bytes_[1] == '[' || bytes_[1] == 'O') return sequence(last);
  if (bytes_[1] == '\x1b') return take(1, Kind::kUnknown);
  return take(2, alt_key(bytes_[1]));
}

std::optional<Key> KeyDecoder::sequence(bool last) {
  std::size_t end = 2;
  const bool is_control = bytes_[1] == '[';
  while (is_control && end < bytes_.size() && bytes_[end] >= 0x20 && bytes_[end] <= 0x3f) ++end;
  if (end == bytes_.size()) return last ? std::optional(take(end, Kind::kUnknown)) : std::nullopt;
  const Kind kind = sequence_key(std::string_view(bytes_).substr(2, end - 2), bytes_[end]);
  return take(end + 1, kind);
}

std::optional<Key> KeyDecoder::paste() {
  const std::size_t from = std::max(paste_searched_, kPasteBegin.size());
  const std::size_t end = bytes_.find(kPasteEnd, from);
  if (end == std::string::npos) {
    paste_searched_ = std::max(kPasteBegin.size(), bytes_.size() - std::min(bytes_.size(), kPasteEnd.size()));
    return std::nullopt;
  }
  Key key{Kind::kPaste, {}};
  std::string text =
      replace_invalid_utf8(std::string_view(bytes_).substr(kPasteBegin.size(), end - kPasteBegin.size()));
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      key.text += text[i];
    } else if (i + 1 == text.size() || text[i + 1] != '\n') {
      key.text += '\n';
    }
  }
  bytes_.erase(0, end + kPasteEnd.size());
  paste_searched_ = 0;
  return key;
}

}  // namespace lily
