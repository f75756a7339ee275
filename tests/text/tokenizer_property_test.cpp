#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <string>
#include <vector>

#include "text/tokenizer.h"
#include "text/unicode.h"

namespace lily {
namespace {

using Ids = std::vector<std::int32_t>;

const Tokenizer& demo() {
  static const Tokenizer tokenizer = Tokenizer::open(LILY_SOURCE_DIR "/models/demo");
  return tokenizer;
}

/// Strings of atoms that meet the tokenizer's special cases, with any code point between them.
rc::Gen<std::string> any_text() {
  static const std::vector<std::string> atoms = {"the",
                                                 " quick",
                                                 "'s",
                                                 "'LL",
                                                 " ",
                                                 "  ",
                                                 "\n",
                                                 "\r\n",
                                                 "\t",
                                                 "0",
                                                 "42",
                                                 "!",
                                                 "...",
                                                 "<",
                                                 "|>",
                                                 "<|im_end|>",
                                                 "<think>",
                                                 "<|im_",
                                                 "\u00E9",
                                                 "e\u0301",
                                                 "\u0301",
                                                 "\u0323",
                                                 "\u0345",
                                                 "\u00A0",
                                                 "\u3000",
                                                 "\u65E5",
                                                 "\uAC00",
                                                 "\u1100",
                                                 "\u1161\u11A8",
                                                 "\U0001F468\u200D",
                                                 "\u0939",
                                                 "\u093C",
                                                 "\u212B",
                                                 "\uFFFD"};
  const auto code_point = rc::gen::map(rc::gen::inRange<std::uint32_t>(0, 0x110000), [](std::uint32_t c) {
    if (c >= 0xD800 && c < 0xE000) c -= 0x800;
    if (c < 0x80) return std::string(1, static_cast<char>(c));
    std::string text;
    const int tails = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    text += static_cast<char>((0xFF00U >> (tails + 1) & 0xFF) | c >> (6 * tails));
    for (int i = tails - 1; i >= 0; --i) text += static_cast<char>(0x80 | (c >> (6 * i) & 0x3F));
    return text;
  });
  const auto parts = rc::gen::container<std::vector<std::string>>(
      rc::gen::weightedOneOf<std::string>({{4, rc::gen::elementOf(atoms)}, {1, code_point}}));
  return rc::gen::map(parts, [](const std::vector<std::string>& list) {
    std::string text;
    for (const std::string& part : list) text += part;
    return text;
  });
}

rc::Gen<Ids> any_ids() {
  return rc::gen::container<Ids>(rc::gen::inRange<std::int32_t>(-3, demo().size() + 3));
}

Ids operator+(Ids left, const Ids& right) {
  left.insert(left.end(), right.begin(), right.end());
  return left;
}

RC_GTEST_PROP(TokenizerProperty, DecodingGivesTheTextInNfc, ()) {
  const std::string text = *any_text();
  RC_ASSERT(replace_invalid_utf8(text) == text);
  RC_ASSERT(demo().decode(demo().encode_text(text)) == normalize_nfc(text));
}

RC_GTEST_PROP(TokenizerProperty, AnyBytesAreTaken, (const std::string& bytes)) {
  const std::string valid = replace_invalid_utf8(bytes);
  RC_ASSERT(demo().encode_text(bytes) == demo().encode_text(valid));
  RC_ASSERT(demo().decode(demo().encode_text(bytes)) == normalize_nfc(valid));
}

RC_GTEST_PROP(TokenizerProperty, NfcIsIdempotent, ()) {
  const std::string text = normalize_nfc(*any_text());
  RC_ASSERT(normalize_nfc(text) == text);
}

RC_GTEST_PROP(TokenizerProperty, StreamingEqualsDecoding, ()) {
  const Ids ids = *any_ids();
  StreamDecoder decoder(demo());
  std::string text;
  for (const std::int32_t id : ids) {
    const std::string part = decoder.push(id);
    RC_ASSERT(replace_invalid_utf8(part) == part);
    text += part;
  }
  RC_ASSERT(text + decoder.finish() == demo().decode(ids));
}

RC_GTEST_PROP(TokenizerProperty, TextNeverBecomesControlTokens, ()) {
  for (const std::int32_t id : demo().encode_text(*any_text())) RC_ASSERT(!demo().is_added(id));
}

RC_GTEST_PROP(TokenizerProperty, PiecesAreTheTextsBetweenControlTokens, ()) {
  Pieces pieces;
  Ids expected;
  const auto sections = *rc::gen::container<std::vector<std::string>>(any_text());
  for (const std::string& section : sections) {
    const std::size_t cut = *rc::gen::inRange<std::size_t>(0, section.size() + 1);
    pieces.push_back({section.substr(0, cut)});
    pieces.push_back({section.substr(cut)});
    pieces.push_back({"<|im_end|>", true});
    expected = expected + demo().encode_text(section) + Ids{*demo().added_token("<|im_end|>")};
  }
  RC_ASSERT(demo().encode(pieces) == expected);
}

RC_GTEST_PROP(TokenizerProperty, ControlTokensAreFoundInText, ()) {
  const std::string before = *any_text();
  const std::string after = *any_text();
  const Ids whole = demo().encode_with_control(before + "<|endoftext|>" + after);
  RC_ASSERT(whole == demo().encode_with_control(before) + Ids{*demo().added_token("<|endoftext|>")} +
                         demo().encode_with_control(after));
}

}  // namespace
}  // namespace lily
