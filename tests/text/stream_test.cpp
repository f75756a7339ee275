// StreamDecoder never splits a character, and holds back nothing longer than it must.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "text/small_tokenizer.h"
#include "text/unicode.h"

namespace lily {
namespace {

const Tokenizer& bytes_only() {
  static const Tokenizer tokenizer = tokenizer_of(small_tokenizer_json({}));
  return tokenizer;
}

bool is_valid_utf8(const std::string& text) {
  return replace_invalid_utf8(text) == text;
}

/// What push returns byte by byte, and at the end what finish returns.
std::vector<std::string> pushed(const std::string& bytes) {
  StreamDecoder decoder(bytes_only());
  std::vector<std::string> texts;
  for (const char byte : bytes) texts.push_back(decoder.push(static_cast<unsigned char>(byte)));
  texts.push_back(decoder.finish());
  return texts;
}

using Texts = std::vector<std::string>;

TEST(Stream, CharactersComeWhole) {
  EXPECT_EQ(pushed("ab"), (Texts{"a", "b", ""}));
  EXPECT_EQ(pushed("\u00E9"), (Texts{"", "\u00E9", ""}));
  EXPECT_EQ(pushed("\u20ACx"), (Texts{"", "", "\u20AC", "x", ""}));
  EXPECT_EQ(pushed("\U0001F44D"), (Texts{"", "", "", "\U0001F44D", ""}));
}

TEST(Stream, InvalidBytesAreReplacedAsSoonAsTheyAreKnown) {
  EXPECT_EQ(pushed("\xFF"
                   "a"),
            (Texts{"\uFFFD", "a", ""}));
  EXPECT_EQ(pushed("\xE2\x82"
                   "a"),
            (Texts{"", "", "\uFFFDa", ""}));
  EXPECT_EQ(pushed("\xE2\xE2\x82\xAC"), (Texts{"", "\uFFFD", "", "\u20AC", ""}));
  EXPECT_EQ(pushed("\xF0\x80"), (Texts{"", "\uFFFD\uFFFD", ""}));
  EXPECT_EQ(pushed("\xF0\x9F\x91"), (Texts{"", "", "", "\uFFFD"}));
}

TEST(Stream, ControlTokensEndACharacter) {
  StreamDecoder decoder(bytes_only());
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.push(*bytes_only().added_token("<a>b")), "\uFFFD<a>b");
  EXPECT_EQ(decoder.push(-1), "");
  EXPECT_EQ(decoder.push(1 << 30), "");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(Stream, FinishStartsAnew) {
  StreamDecoder decoder(bytes_only());
  decoder.push(0xE2);
  EXPECT_EQ(decoder.finish(), "\uFFFD");
  EXPECT_EQ(decoder.finish(), "");
  EXPECT_EQ(decoder.push('a'), "a");
}

TEST(Stream, TokensThatCutCharactersAnywhere) {
  // Pieces of two and three bytes that begin and end inside characters, over text of all lengths of characters.
  const auto piece = [](std::string_view bytes) {
    std::string spelling;
    for (const char byte : bytes) spelling += spelling_of_byte(static_cast<unsigned char>(byte));
    return spelling;
  };
  const std::string text = "a\u00E9\u20AC\U0001F44D\u00E9a\u20AC\u20AC\U0001F44D\U0001F44D";
  std::vector<std::pair<std::string, std::string>> merges;
  for (std::size_t i = 0; i + 1 < text.size(); ++i)
    merges.emplace_back(piece(text.substr(i, 1)), piece(text.substr(i + 1, 1)));
  const Tokenizer tokenizer = tokenizer_of(small_tokenizer_json(merges));
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::int32_t> ids;
    for (std::size_t at = 0; at < text.size();) {
      // The byte itself, or a two-byte piece that is there.
      const std::string_view two = std::string_view(text).substr(at, 2);
      std::int32_t id = static_cast<unsigned char>(text[at]);
      for (std::int32_t other = 256; other < tokenizer.size() && random() % 2 == 0; ++other) {
        if (tokenizer.bytes(other) == two) id = other;
      }
      ids.push_back(id);
      at += tokenizer.bytes(id).size();
    }
    StreamDecoder decoder(tokenizer);
    std::string streamed;
    for (const std::int32_t id : ids) {
      const std::string part = decoder.push(id);
      ASSERT_TRUE(is_valid_utf8(part));
      ASSERT_EQ(part.find(kReplacement), std::string::npos);
      streamed += part;
    }
    ASSERT_EQ(decoder.finish(), "");
    ASSERT_EQ(streamed, text);
  }
}

TEST(Stream, RandomBytesEqualDecodeAndHoldBackAtMostThree) {
  std::mt19937 random(4);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::int32_t> ids;
    for (auto left = random() % 20; left > 0; --left) {
      ids.push_back(static_cast<std::int32_t>(random() % 3 == 0 ? random() % 258 : 0x80 + random() % 0x80));
    }
    StreamDecoder decoder(bytes_only());
    std::string streamed;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::string part = decoder.push(ids[i]);
      ASSERT_TRUE(is_valid_utf8(part));
      streamed += part;
      // With what is held back shown as U+FFFD it is the whole text so far.
      const std::string whole = bytes_only().decode(std::span(ids).first(i + 1));
      ASSERT_TRUE(streamed == whole || streamed + std::string(kReplacement) == whole);
    }
    streamed += decoder.finish();
    ASSERT_EQ(streamed, bytes_only().decode(ids));
  }
}

}  // namespace
}  // namespace lily
