// How deep JSON text is nested. Parsing is iterative, but writing and comparing values is not: text from outside is
// looked at before it is parsed.
#pragma once

#include <string_view>

namespace lily {

/// Levels that requests, and JSON texts inside them, may have.
inline constexpr int kDeepestJson = 128;

/// The most brackets and braces that are open at a time; text that is no JSON gives some number.
inline int json_depth(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = deepest > ++depth ? deepest : depth;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

}  // namespace lily
