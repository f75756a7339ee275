// The split pattern of the model's pre-tokenizer, as a hand-written matcher: BPE merges never cross its words.
#pragma once

#include <cstddef>
#include <string_view>

#include "text/unicode.h"

namespace lily {

/// The one pattern that WordSplitter implements, as tokenizer.json spells it.
inline constexpr std::string_view kSplitPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// Cuts valid UTF-8 into words; together they are the whole text. Time is linear for any input.
class WordSplitter {
 public:
  explicit WordSplitter(std::string_view text) : text_(text) {}
  /// The next word, or nothing at the end.
  std::string_view next();

 private:
  struct Char {
    char32_t code_point = 0;
    CharClass kind = CharClass::kOther;
    std::size_t end = 0;  // where the next one begins; equal to its own place at the end of the text
  };
  Char char_at(std::size_t at) const;
  std::size_t contraction_end(std::size_t at) const;
  std::size_t skip_letters(std::size_t at) const;
  std::size_t skip_symbols(std::size_t at) const;
  std::size_t space_end(std::size_t at) const;
  std::size_t word_end(std::size_t at) const;

  std::string_view text_;
  std::size_t at_ = 0;
  CharClasses classes_;
};

}  // namespace lily
