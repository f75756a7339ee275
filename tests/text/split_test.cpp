#include "text/split.h"

#include <gtest/gtest.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

namespace lily {
namespace {

using Words = std::vector<std::string>;

Words split(std::string_view text) {
  WordSplitter splitter(text);
  Words words;
  for (std::string_view word = splitter.next(); !word.empty(); word = splitter.next()) words.emplace_back(word);
  return words;
}

/// kSplitPattern run by PCRE2.
class Pattern {
 public:
  Pattern() {
    int error = 0;
    PCRE2_SIZE where = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(kSplitPattern.data()), kSplitPattern.size(),
                              PCRE2_UTF | PCRE2_UCP, &error, &where, nullptr));
    if (!code_) throw std::runtime_error("pcre2_compile: error " + std::to_string(error));
    match_.reset(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
  }
  Words split(const std::string& text) const {
    Words words;
    for (std::size_t at = 0; at < text.size();) {
      const int found = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                    PCRE2_ANCHORED, match_.get(), nullptr);
      if (found <= 0) throw std::runtime_error("pcre2_match: " + std::to_string(found));
      const std::size_t end = pcre2_get_ovector_pointer(match_.get())[1];
      words.push_back(text.substr(at, end - at));
      at = end;
    }
    return words;
  }

 private:
  std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code_{nullptr, &pcre2_code_free};
  std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match_{nullptr, &pcre2_match_data_free};
};

TEST(Split, Words) {
  EXPECT_EQ(split(""), Words{});
  EXPECT_EQ(split("Hello, world!"), (Words{"Hello", ",", " world", "!"}));
  EXPECT_EQ(split("it's IT'S we'LL 'twas"), (Words{"it", "'s", " IT", "'S", " we", "'LL", " '", "twas"}));
  EXPECT_EQ(split("a'\u017Fb"), (Words{"a", "'\u017F", "b"}));
  EXPECT_EQ(split("2024"), (Words{"2", "0", "2", "4"}));
  EXPECT_EQ(split("a   b"), (Words{"a", "  ", " b"}));
  EXPECT_EQ(split("a   1"), (Words{"a", "  ", " ", "1"}));
  EXPECT_EQ(split("a  "), (Words{"a", "  "}));
  EXPECT_EQ(split("a \n \n  b"), (Words{"a", " \n \n", " ", " b"}));
  EXPECT_EQ(split(" ...\r\n\nx"), (Words{" ...\r\n\n", "x"}));
  EXPECT_EQ(split("\tx\u00A0y\u3000z"), (Words{"\tx", "\u00A0y", "\u3000z"}));
  EXPECT_EQ(split("\u0301a"), (Words{"\u0301a"}));
  EXPECT_EQ(split("\u0939\u093F\u0928"), (Words{"\u0939\u093F\u0928"}));
  EXPECT_EQ(split(std::string_view("\0\0a", 3)), (Words{std::string(2, '\0'), "a"}));
}

TEST(Split, EqualsPcre2) {
  const std::vector<std::string> atoms = {
      "a",      "Z",      "s",      "S",      "t",       "re",         "VE",     "l",      "L",
      "m",      "d",      "'",      "'",      "'s",      " ",          " ",      "  ",     "\n",
      "\r",     "\r\n",   "\t",     "\v",     "\f",      "0",          "9",      "!",      ".",
      "-",      "_",      "<|im|>", "\u00E9", "\u0301",  "\u0345",     "\u00A0", "\u2003", "\u2028",
      "\u0085", "\u3000", "\u4E2D", "\uAC00", "\u0663",  "\u00BD",     "\u2167", "\u20AC", "\u200D",
      "\u017F", "\u212A", "\u0939", "\u093F", "\u1F600", "\U0001F468", "\uFE0F", "\uFFFD", "\U0001D7D8"};
  const Pattern pattern;
  std::mt19937 random(2);
  for (int i = 0; i < 100000; ++i) {
    std::string text;
    for (auto left = random() % 12; left > 0; --left) text += atoms[random() % atoms.size()];
    ASSERT_EQ(split(text), pattern.split(text)) << text;
  }
}

TEST(Split, LongRunsTakeLinearTime) {
  for (const std::string unit : {"a", " ", "\n", "\u0301", " \n", "!", "'s", "\u3000"}) {
    std::string text = "x";
    while (text.size() < 2'000'000) text += unit;
    std::size_t total = 0;
    for (const std::string& word : split(text + "y")) total += word.size();
    EXPECT_EQ(total, text.size() + 1);
  }
}

}  // namespace
}  // namespace lily
