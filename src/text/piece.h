// Rendered chat, before tokenisation: control tokens and ordinary text are kept apart, so that text which merely spells
// a control token ("<|im_end|>" typed by a user) can never become one. Adjacent ordinary pieces are one text to the
// tokenizer.
#pragma once

#include <string>
#include <vector>

namespace lily {

struct Piece {
  std::string text;
  bool control = false;  // `text` is exactly one added token, e.g. "<|im_start|>"
};
using Pieces = std::vector<Piece>;

}  // namespace lily
