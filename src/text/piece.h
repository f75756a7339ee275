// Rendered chat, before tokenisation: control tokens and ordinary text are kept apart, so that text which merely spells
// a control token ("<|im_end|>" typed by a user) can never become one. Adjacent ordinary pieces are one text to the
// tokenizer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lily {

struct Piece {
  std::string text;
  bool control = false;  // `text` is exactly one added token, e.g. "<|im_start|>"
  /// The ids that spell `text`, where they are known because the model sampled them: they are taken as they are, since
  /// encoding the text anew can give others. Empty otherwise.
  std::vector<std::int32_t> tokens = {};
};
using Pieces = std::vector<Piece>;

}  // namespace lily
