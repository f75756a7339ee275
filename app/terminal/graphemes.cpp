#include "terminal/graphemes.h"

#include <utf8proc.h>

#include <algorithm>

namespace lily {
namespace {

struct CodePoint {
  utf8proc_int32_t value;
  std::size_t size;
};

CodePoint code_point_at(std::string_view text, std::size_t offset) {
  utf8proc_int32_t value = 0;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data() + offset);
  const auto size = utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size() - offset), &value);
  if (size <= 0) return {0xfffd, 1};
  return {value, static_cast<std::size_t>(size)};
}

}  // namespace

std::size_t cluster_size(std::string_view text, std::size_t offset) {
  utf8proc_int32_t state = 0;
  CodePoint previous = code_point_at(text, offset);
  std::size_t end = offset + previous.size;
  while (end < text.size()) {
    const CodePoint next = code_point_at(text, end);
    if (utf8proc_grapheme_break_stateful(previous.value, next.value, &state)) break;
    previous = next;
    end += next.size;
  }
  return end - offset;
}

std::size_t cluster_before(std::string_view text, std::size_t offset) {
  // Clusters are found forwards only; none crosses the beginning of a line.
  std::size_t begin = offset < 2 ? 0 : text.rfind('\n', offset - 2) + 1;
  while (begin + cluster_size(text, begin) < offset) begin += cluster_size(text, begin);
  return begin;
}

Glyph glyph_of(std::string_view cluster) {
  constexpr utf8proc_int32_t kEmojiSelector = 0xfe0f;
  const utf8proc_int32_t first = code_point_at(cluster, 0).value;
  if (first == '\t') return {"    ", 4};
  if (first < 0x20 || first == 0x7f) return {{'^', static_cast<char>(first ^ 0x40)}, 2};
  if (first >= 0x80 && first < 0xa0) return {"\xef\xbf\xbd", 1};
  int width = 0;
  for (std::size_t at = 0; at < cluster.size();) {
    const CodePoint code_point = code_point_at(cluster, at);
    width = std::max(width, code_point.value == kEmojiSelector ? 2 : utf8proc_charwidth(code_point.value));
    at += code_point.size;
  }
  return {std::string(cluster), width};
}

int display_width(std::string_view text) {
  int width = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = cluster_size(text, at);
    width += glyph_of(text.substr(at, size)).width;
    at += size;
  }
  return width;
}

}  // namespace lily
