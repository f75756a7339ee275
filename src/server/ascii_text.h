// Letters of HTTP's own words (names of fields, encodings, schemes, hosts), which count the same in upper and lower
// case whatever the locale.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace lily {

inline bool is_ascii_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

inline std::string ascii_lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return result;
}

}  // namespace lily
