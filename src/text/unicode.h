// What the tokenizer needs of Unicode: UTF-8, classes of code points, NFC.
//
// Classes and the reach of NFC come from a table made from Hugging Face's tokenizers (tools/unicode_properties.py), so
// that results equal theirs and do not depend on which Unicode version the system's utf8proc has. Not here: case
// folding, grapheme clusters, display width.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lily {

inline constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

enum class Utf8State : std::uint8_t {
  kValid,
  kInvalid,     // `length` bytes can never become a character: one U+FFFD stands for them
  kIncomplete,  // the text ends inside what may become a character; `length` bytes are left
};

struct Utf8Char {
  char32_t code_point = 0;
  std::uint8_t length = 0;  // 1 to 4 bytes
  Utf8State state = Utf8State::kValid;
};

/// The character at `at` < text.size(). Invalid bytes are taken as the longest beginning of a character ("maximal
/// subpart"), as Unicode recommends and as Python's errors="replace" and Rust's from_utf8_lossy do.
Utf8Char decode_utf8(std::string_view text, std::size_t at);

bool is_ascii(std::string_view text);

/// `text` with U+FFFD for whatever is not UTF-8, an unfinished character at the end included.
std::string replace_invalid_utf8(std::string_view text);

/// NFC of valid UTF-8, in time O(n log n) for any input. Code points newer than Unicode 9 are left as they are.
std::string normalize_nfc(std::string_view text);

enum class CharClass : std::uint8_t { kOther, kLetter, kMark, kNumber, kSpace };

/// Properties of all code points, one byte each: a CharClass in the low three bits.
class CharClasses {
 public:
  CharClasses();
  CharClass operator()(char32_t code_point) const { return static_cast<CharClass>(properties_[code_point] & 7U); }
  bool active_in_nfc(char32_t code_point) const { return (properties_[code_point] & 8U) != 0; }

 private:
  const std::uint8_t* properties_;  // [0x110000]
};

}  // namespace lily
