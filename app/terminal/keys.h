// Bytes from a terminal -> keys. Understands UTF-8, control characters, the escape sequences of xterm and its kin, and
// bracketed paste (ESC [200~ text ESC [201~), which makes a pasted text one key whatever it contains.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lily {

struct Key {
  enum class Kind {
    kText,   // `text`: typed characters
    kPaste,  // `text`, line breaks as \n
    kEnter,
    kNewline,  // Alt-Enter or Ctrl-J: a line break in the text
    kBackspace,
    kDelete,
    kLeft,
    kRight,
    kUp,
    kDown,
    kWordLeft,
    kWordRight,
    kLineBegin,
    kLineEnd,
    kKillToEnd,
    kKillToBegin,
    kKillWordLeft,
    kKillWordRight,
    kYank,
    kHistoryBack,
    kHistoryForward,
    kClearScreen,
    kInterrupt,
    kEndOfInput,
    kSuspend,
    kUnknown
  };
  Kind kind = Kind::kUnknown;
  std::string text;
};

class KeyDecoder {
 public:
  void push(std::string_view bytes) { bytes_ += bytes; }
  /// The next whole key. `last`: no more bytes come for now, so that an ESC alone is a key (an unknown one).
  std::optional<Key> next(bool last);
  bool empty() const { return bytes_.empty(); }
  bool in_paste() const { return bytes_.starts_with(kPasteBegin); }

 private:
  static constexpr std::string_view kPasteBegin = "\x1b[200~";
  static constexpr std::string_view kPasteEnd = "\x1b[201~";

  std::optional<Key> escape(bool last);
  std::optional<Key> sequence(bool last);
  std::optional<Key> paste();
  Key take(std::size_t size, Key::Kind kind);

  std::string bytes_;
  std::size_t paste_searched_ = 0;  // of bytes_, for the end of a paste
};

}  // namespace lily
