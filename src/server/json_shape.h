// How deep JSON text is nested, how many values it has, and how long its objects take to parse. Parsing is iterative,
// but writing and comparing values is not; a value of two bytes takes forty or more once it is parsed; and objects that
// keep their order look at every field before the next. So text from outside is looked at before it is parsed.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace lily {

struct JsonShape {
  std::size_t depth = 0;            // the most brackets and braces that are open at a time
  std::size_t values = 1;           // entries of arrays and fields of objects, or a few more
  std::uint64_t field_squares = 0;  // the sum, over all objects, of the number of their fields squared
};

/// Levels that requests, and JSON texts inside them, may have.
inline constexpr std::size_t kDeepestJson = 128;
/// Twice the tokens of the longest context, should all be given as ids: 100 MB of numbers, 180 MB of texts.
inline constexpr std::size_t kMostJsonValues = std::size_t{1} << 21;
/// One object of 16,384 fields, or any number of small ones: a second.
inline constexpr std::uint64_t kMostFieldSquares = std::uint64_t{1} << 28;

/// Text that is no JSON gives some numbers. One of too many values is not looked at to its end.
inline JsonShape json_shape(std::string_view text) {
  JsonShape shape;
  std::vector<std::uint64_t> open;  // fields so far of what is open
  bool in_string = false;
  for (std::size_t i = 0; i < text.size() && shape.values <= kMostJsonValues; ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      open.push_back(0);
      ++shape.values;
      shape.depth = open.size() > shape.depth ? open.size() : shape.depth;
    } else if (c == ',') {
      ++shape.values;
    } else if (c == ':' && !open.empty()) {
      shape.field_squares += 2 * open.back()++ + 1;
    } else if ((c == '}' || c == ']') && !open.empty()) {
      open.pop_back();
    }
  }
  return shape;
}

/// Whether text inside of a request may be parsed.
inline bool is_modest_json(std::string_view text) {
  const JsonShape shape = json_shape(text);
  return shape.depth <= kDeepestJson && shape.values <= kMostJsonValues && shape.field_squares <= kMostFieldSquares;
}

}  // namespace lily
