#include "text/unicode.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

namespace lily {
namespace {

/// By arithmetic, for any value up to 0x1FFFFF, valid or not.
std::string utf8(char32_t c) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0 | c >> 6), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xE0 | c >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | c >> 18), tail(12), tail(6), tail(0)};
}

std::string utf8proc_nfc(const std::string& text) {
  utf8proc_uint8_t* result = nullptr;
  const auto length =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &result, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
  EXPECT_GE(length, 0);
  return {reinterpret_cast<const char*>(result), static_cast<std::size_t>(length)};
}

TEST(Unicode, DecodesEveryCodePoint) {
  for (char32_t c = 0; c < 0x120000; ++c) {
    const bool valid = c < 0x110000 && (c < 0xD800 || c > 0xDFFF);
    const std::string bytes = utf8(c);
    const Utf8Char decoded = decode_utf8(bytes, 0);
    ASSERT_EQ(decoded.state == Utf8State::kValid, valid) << std::hex << static_cast<unsigned>(c);
    if (!valid) continue;
    ASSERT_EQ(decoded.code_point, c);
    ASSERT_EQ(decoded.length, bytes.size());
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
      const Utf8Char part = decode_utf8(std::string_view(bytes).substr(0, cut), 0);
      ASSERT_EQ(part.state, Utf8State::kIncomplete);
      ASSERT_EQ(part.length, cut);
    }
  }
}

TEST(Unicode, ReplacesMaximalSubparts) {
  // The examples of the Unicode standard, section 3.9; an unfinished character at the end is one too.
  EXPECT_EQ(replace_invalid_utf8("a\xF1\x80\x80\xE1\x80\xC2"
                                 "b\x80"
                                 "c\x80\xBF"
                                 "d"),
            "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd");
  EXPECT_EQ(replace_invalid_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41");
  EXPECT_EQ(replace_invalid_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41");
  EXPECT_EQ(replace_invalid_utf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41\uFFFD\uFFFD\x42");
  EXPECT_EQ(replace_invalid_utf8("x\xF0\x9F\x98"), "x\uFFFD");
  EXPECT_EQ(replace_invalid_utf8(std::string_view("\0\x7F", 2)), std::string_view("\0\x7F", 2));
}

TEST(Unicode, Composes) {
  EXPECT_EQ(normalize_nfc(""), "");
  EXPECT_EQ(normalize_nfc("plain"), "plain");
  EXPECT_EQ(normalize_nfc("cafe\u0301"), "caf\u00E9");
  EXPECT_EQ(normalize_nfc("e\u0301\u0323"), "\u1EB9\u0301");             // marks reordered, then composed
  EXPECT_EQ(normalize_nfc("\u00E9\u0323"), "\u1EB9\u0301");              // a composed character taken apart for it
  EXPECT_EQ(normalize_nfc("\u212B\u2126"), "\u00C5\u03A9");              // singletons
  EXPECT_EQ(normalize_nfc("\u1112\u1161\u11AB"), "\uD55C");              // Hangul jamo
  EXPECT_EQ(normalize_nfc("\uD558\u11AB"), "\uD55C");                    // a syllable and a final consonant
  EXPECT_EQ(normalize_nfc("\u0958"), "\u0915\u093C");                    // excluded from composition
  EXPECT_EQ(normalize_nfc("\uF900"), "\u8C48");                          // compatibility ideograph
  EXPECT_EQ(normalize_nfc("\uFB01\uFF76\uFF9E"), "\uFB01\uFF76\uFF9E");  // compatibility forms stay
  EXPECT_EQ(normalize_nfc("\u0301\u0323 a"), "\u0323\u0301 a");          // marks with nothing before
}

TEST(Unicode, LeavesMarksNewerThanUnicode9InPlace) {
  EXPECT_EQ(normalize_nfc("a\u1ABF\u0334"), "a\u1ABF\u0334");
  EXPECT_EQ(normalize_nfc("a\u1ABF\u0301"), "a\u1ABF\u0301");
}

TEST(Unicode, NfcEqualsUtf8procWhereBothKnowTheCharacters) {
  const CharClasses classes;
  std::vector<char32_t> active;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (classes.active_in_nfc(c)) active.push_back(c);
  }
  ASSERT_GT(active.size(), 1500U);
  const std::u32string others = U"aeoAEO \u00E9\u01D5\u0627\u0915\u09C7\u1100\u1112\uAC00\uD558\u304B\u30CF\u4E00";
  std::mt19937 random(1);
  for (int i = 0; i < 100000; ++i) {
    std::string text;
    for (auto left = random() % 8; left > 0; --left) {
      text += utf8(random() % 3 == 0 ? others[random() % others.size()] : active[random() % active.size()]);
    }
    ASSERT_EQ(normalize_nfc(text), utf8proc_nfc(text)) << text;
  }
}

TEST(Unicode, MarksOfOneClassKeepTheirOrder) {
  const std::u32string marks = U"\u0300\u0301\u0302\u0316\u0317\u0323\u0334\u0345";
  std::mt19937 random(6);
  for (int i = 0; i < 1000; ++i) {
    std::string text = "x";
    for (int left = 100; left > 0; --left) text += utf8(marks[random() % marks.size()]);
    ASSERT_EQ(normalize_nfc(text), utf8proc_nfc(text));
  }
}

TEST(Unicode, OrdersALongRunOfMarksInTime) {
  std::string high;
  std::string low;
  for (int i = 0; i < 250000; ++i) {
    high += "\u0301";
    low += "\u0323";
  }
  EXPECT_EQ(normalize_nfc("e" + high + low), "\u1EB9" + low.substr(2) + high);
}

TEST(Unicode, ClassesAgreeWithUtf8procWhereItKnowsTheCharacter) {
  if (std::stoi(utf8proc_unicode_version()) > 16) GTEST_SKIP() << "utf8proc knows characters that the table does not";
  const CharClasses classes;
  for (char32_t c = 0; c < 0x110000; ++c) {
    const auto point = static_cast<utf8proc_int32_t>(c);
    if (utf8proc_category(point) == UTF8PROC_CATEGORY_CN) continue;
    CharClass expected = CharClass::kOther;
    const char category = utf8proc_category_string(point)[0];
    if (category == 'L') expected = CharClass::kLetter;
    if (category == 'M') expected = CharClass::kMark;
    if (category == 'N') expected = CharClass::kNumber;
    if (category == 'Z' || (c >= 9 && c <= 13) || c == 0x85) expected = CharClass::kSpace;
    ASSERT_EQ(classes(c), expected) << std::hex << point;
  }
}

}  // namespace
}  // namespace lily
