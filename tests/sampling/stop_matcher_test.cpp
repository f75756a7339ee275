// Stop strings against a naive search over the whole text, however the text is cut into pieces.
#include "sampling/stop_matcher.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "support/error.h"

namespace lily {
namespace {

struct Found {
  std::string shown;
  std::optional<std::size_t> stop;
};

/// The definition: the earliest end of any stop string; of several that end there, the longest, then the first named.
Found naive_search(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    Found found;
    std::size_t longest = 0;
    for (std::size_t i = 0; i < stops.size(); ++i) {
      const std::size_t length = stops[i].size();
      if (length <= longest || length > end || text.compare(end - length, length, stops[i]) != 0) continue;
      longest = length;
      found = {text.substr(0, end - length), i};
    }
    if (found.stop) return found;
  }
  return {text, std::nullopt};
}

/// The longest end of `text` that is a beginning of a stop string.
std::size_t may_begin(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t length = text.size(); length > 0; --length) {
    for (const std::string& stop : stops) {
      if (stop.compare(0, length, text, text.size() - length, length) == 0) return length;
    }
  }
  return 0;
}

TEST(StopMatcher, FindsAStopStringAcrossPieces) {
  StopMatcher matcher({"END", "\n\n"});
  EXPECT_EQ(matcher.push("one E"), "one ");
  EXPECT_EQ(matcher.push("N"), "");
  EXPECT_EQ(matcher.push("E"), "EN");
  EXPECT_EQ(matcher.push("ND two"), "");
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.matched(), 0U);
  EXPECT_EQ(matcher.push("more"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, GivesBackWhatDidNotBecomeAStopString) {
  StopMatcher matcher({"<end>"});
  EXPECT_EQ(matcher.push("a<en"), "a");
  EXPECT_EQ(matcher.push(""), "");
  EXPECT_EQ(matcher.finish(), "<en");
  EXPECT_EQ(matcher.push("d>"), "d>");  // finish() starts anew
  EXPECT_FALSE(matcher.stopped());
}

TEST(StopMatcher, WithoutStopStringsPassesEverything) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.push("text"), "text");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, RejectsAnEmptyStopString) {
  EXPECT_THROW(StopMatcher({"a", ""}), Error);
}

TEST(StopMatcher, StaysLinearOnRepetitiveStrings) {
  const std::string almost(100000, 'a');
  StopMatcher matcher({almost + "b"});
  std::string shown;
  for (int i = 0; i < 30; ++i) shown += matcher.push(std::string(10000, 'a'));
  EXPECT_EQ(shown.size() + matcher.finish().size(), 300000U);
}

TEST(StopMatcher, EqualsNaiveSearch) {
  // Few characters, of one to four bytes that share some, so that stop strings overlap themselves and each other.
  const std::vector<std::string> alphabet{"a", "b", "é", "è", "日", "🙂", "🙃"};
  const auto word = [&](int least, int most) {
    return rc::gen::map(
        rc::gen::resize(most, rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, 7))),
        [&, least](const std::vector<std::size_t>& letters) {
          std::string text;
          for (const std::size_t letter : letters) text += alphabet[letter];
          return text.empty() && least > 0 ? alphabet[0] : text;
        });
  };
  EXPECT_TRUE(rc::check("pieces in, same text out", [&] {
    const auto stops = *rc::gen::resize(4, rc::gen::container<std::vector<std::string>>(word(1, 4)));
    const auto pieces = *rc::gen::container<std::vector<std::string>>(word(0, 6));
    std::string text, shown;
    StopMatcher matcher(stops);
    for (const std::string& piece : pieces) {
      text += piece;
      shown += matcher.push(piece);
      if (!matcher.stopped()) RC_ASSERT(shown.size() + may_begin(text, stops) == text.size());
      RC_ASSERT(shown.empty() || shown.size() == text.size() || (text[shown.size()] & 0xC0) != 0x80);
    }
    shown += matcher.finish();
    const Found expected = naive_search(text, stops);
    RC_ASSERT(shown == expected.shown);
    RC_ASSERT(matcher.matched().has_value() == expected.stop.has_value());
    if (expected.stop) RC_ASSERT(stops[*matcher.matched()] == stops[*expected.stop]);
  }));
}

}  // namespace
}  // namespace lily
