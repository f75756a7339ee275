#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "support/error.h"

namespace lily {
namespace {

constexpr char32_t kCodePoints = 0x110000;

// Runs of equal properties: first code point << 4 | properties, ascending.
constexpr std::uint32_t kRuns[] = {
#include "text/unicode_properties.inc"
};

std::vector<std::uint8_t> expand_properties() {
  std::vector<std::uint8_t> properties(kCodePoints);
  for (std::size_t i = 0; i < std::size(kRuns); ++i) {
    const std::uint32_t begin = kRuns[i] >> 4;
    const std::uint32_t end = i + 1 < std::size(kRuns) ? kRuns[i + 1] >> 4 : kCodePoints;
    std::fill(properties.begin() + begin, properties.begin() + end, static_cast<std::uint8_t>(kRuns[i] & 15U));
  }
  return properties;
}

/// The range that the byte after `lead` must lie in so that the character is neither overlong, a surrogate nor above
/// U+10FFFF.
struct SecondByte {
  unsigned char low, high;
};
constexpr SecondByte second_byte(unsigned char lead) {
  switch (lead) {
    case 0xE0:
      return {0xA0, 0xBF};
    case 0xED:
      return {0x80, 0x9F};
    case 0xF0:
      return {0x90, 0xBF};
    case 0xF4:
      return {0x80, 0x8F};
    default:
      return {0x80, 0xBF};
  }
}

void append_utf8(std::string& out, char32_t code_point) {
  std::array<utf8proc_uint8_t, 4> bytes;
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes.data());
  out.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(length));
}

/// The run of active code points collected so far, with the character before it, in NFC onto `out`.
class Composer {
 public:
  explicit Composer(std::string& out) : out_(out) {}

  void add(char32_t code_point) {
    std::array<utf8proc_int32_t, 8> parts;
    int boundary = 0;
    const auto count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code_point), parts.data(),
                                static_cast<utf8proc_ssize_t>(parts.size()), UTF8PROC_DECOMPOSE, &boundary);
    LILY_CHECK(count > 0 && count <= static_cast<utf8proc_ssize_t>(parts.size()));
    points_.insert(points_.end(), parts.begin(), parts.begin() + count);
  }

  void flush() {
    if (points_.empty()) return;
    order();
    const auto count = utf8proc_normalize_utf32(points_.data(), static_cast<utf8proc_ssize_t>(points_.size()),
                                                static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    LILY_CHECK(count >= 0);
    for (utf8proc_ssize_t i = 0; i < count; ++i) append_utf8(out_, static_cast<char32_t>(points_[i]));
    points_.clear();
  }

 private:
  /// Canonical order: runs of combining marks sorted by class. utf8proc_decompose does it by adjacent swaps, which on a
  /// long run of marks takes quadratic time.
  void order() {
    const auto combining_class = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
    for (auto begin = points_.begin(); begin != points_.end();) {
      if (combining_class(*begin) == 0) {
        ++begin;
        continue;
      }
      const auto end = std::find_if(begin, points_.end(), [&](auto c) { return combining_class(c) == 0; });
      std::stable_sort(begin, end, [&](auto a, auto b) { return combining_class(a) < combining_class(b); });
      begin = end;
    }
  }

  std::string& out_;
  std::vector<utf8proc_int32_t> points_;
};

}  // namespace

Utf8Char decode_utf8(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1, Utf8State::kValid};
  if (lead < 0xC2 || lead > 0xF4) return {0xFFFD, 1, Utf8State::kInvalid};
  const std::uint8_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  char32_t code_point = lead & (0x7FU >> length);
  for (std::uint8_t i = 1; i < length; ++i) {
    if (at + i >= text.size()) return {0xFFFD, i, Utf8State::kIncomplete};
    const SecondByte range = i == 1 ? second_byte(lead) : SecondByte{0x80, 0xBF};
    if (byte(i) < range.low || byte(i) > range.high) return {0xFFFD, i, Utf8State::kInvalid};
    code_point = code_point << 6 | (byte(i) & 0x3FU);
  }
  return {code_point, length, Utf8State::kValid};
}

bool is_ascii(std::string_view text) {
  unsigned char seen = 0;
  for (const char c : text) seen |= static_cast<unsigned char>(c);
  return seen < 0x80;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    out.append(c.state == Utf8State::kValid ? text.substr(at, c.length) : kReplacement);
    at += c.length;
  }
  return out;
}

std::string normalize_nfc(std::string_view text) {
  const CharClasses classes;
  std::string out;
  out.reserve(text.size());
  Composer composer(out);
  // text[copied, at) is inert and not yet written; its last character may yet compose with what follows.
  std::size_t copied = 0;
  std::size_t last = 0;
  char32_t last_code_point = 0;
  for (std::size_t at = 0; at < text.size();) {
    Utf8Char c = decode_utf8(text, at);
    if (!classes.active_in_nfc(c.code_point)) {
      last = at;
      last_code_point = c.code_point;
      at += c.length;
      continue;
    }
    // A character that only utf8proc's newer Unicode gives a combining class must not be reordered.
    const bool takes_marks =
        at > copied && utf8proc_get_property(static_cast<utf8proc_int32_t>(last_code_point))->combining_class == 0;
    out.append(text.substr(copied, (takes_marks ? last : at) - copied));
    if (takes_marks) composer.add(last_code_point);
    while (at < text.size() && classes.active_in_nfc((c = decode_utf8(text, at)).code_point)) {
      composer.add(c.code_point);
      at += c.length;
    }
    composer.flush();
    copied = at;
  }
  out.append(text.substr(copied));
  return out;
}

CharClasses::CharClasses() {
  static const std::vector<std::uint8_t> kProperties = expand_properties();
  properties_ = kProperties.data();
}

}  // namespace lily
