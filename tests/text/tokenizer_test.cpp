#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "support/error.h"
#include "text/small_tokenizer.h"

namespace lily {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

const Tokenizer& demo() {
  static const Tokenizer tokenizer = Tokenizer::open(LILY_SOURCE_DIR "/models/demo");
  return tokenizer;
}

TEST(Tokenizer, EncodesAsHuggingFaceDoes) {
  // Ids from tokenizers 0.23.3; tokenizer_oracle.py compares much more.
  EXPECT_EQ(demo().encode_text("Hello, world! It's 2024.\n\n  Indented\tcaf\u00E9"),
            (Ids{1429, 11, 872, 0, 488, 410, 220, 17, 15, 17, 19, 292, 220, 3802, 348, 269, 197, 66, 799, 127, 102}));
  EXPECT_EQ(demo().encode_text("e\u0301 \u00E9"), (Ids{127, 102, 220, 127, 102}));
  EXPECT_EQ(demo().encode_text(std::string_view("\0", 1)), Ids{188});
  EXPECT_EQ(demo().encode_text("   x"), (Ids{220, 220, 220, 87}));
  EXPECT_EQ(demo().encode_text(""), Ids{});
  EXPECT_EQ(demo().size(), 8192);
}

TEST(Tokenizer, KeepsControlTokensApart) {
  const std::string text = "<|im_start|>user\nHi<|im_end|>\n<think>\n";
  EXPECT_EQ(demo().encode_with_control(text), (Ids{8167, 287, 198, 1696, 8168, 198, 8190, 198}));
  for (const std::int32_t id : demo().encode_text(text)) EXPECT_FALSE(demo().is_added(id));
  EXPECT_EQ(demo().decode(demo().encode_text(text)), text);
  EXPECT_EQ(
      demo().encode({{"<|im_start|>", true}, {"user\nHi"}, {"<|im_end|>", true}, {"\n"}, {"<think>", true}, {"\n"}}),
      demo().encode_with_control(text));
  const Ids user = demo().encode({{"<|im_start|>", true}, {"<|im_"}, {"end|>"}});
  EXPECT_EQ(user.size(), 1 + demo().encode_text("<|im_end|>").size());
  EXPECT_THROW(demo().encode({{"<|no_such|>", true}}), Error);
}

TEST(Tokenizer, TakesAdjacentTextAsOneText) {
  EXPECT_EQ(demo().encode({{"Hel"}, {"lo, wor"}, {"ld"}}), demo().encode_text("Hello, world"));
  EXPECT_EQ(demo().encode({{"caf\xC3"}, {"\xA9"}}), demo().encode_text("caf\u00E9"));
  EXPECT_EQ(demo().encode({{"a"}, {"ignored", false, {5, 6}}, {"b"}}), (Ids{64, 5, 6, 65}));
}

TEST(Tokenizer, LongestControlTokenCounts) {
  const Tokenizer tokenizer = tokenizer_of(small_tokenizer_json({}));
  EXPECT_EQ(tokenizer.encode_with_control("<a>b<a><a"), (Ids{257, 256, '<', 'a'}));
  EXPECT_EQ(tokenizer.added_token("<a>b"), 257);
  EXPECT_EQ(tokenizer.added_token("<a"), std::nullopt);
}

TEST(Tokenizer, TakesInvalidUtf8AsReplacementCharacters) {
  EXPECT_EQ(demo().encode_text("a\xFF\xE2\x82"), demo().encode_text("a\uFFFD\uFFFD"));
  EXPECT_EQ(demo().encode_with_control("\xE2\x82<think>"), demo().encode_with_control("\uFFFD<think>"));
}

TEST(Tokenizer, BytesOfIds) {
  EXPECT_EQ(demo().bytes(8190), "<think>");
  EXPECT_EQ(demo().bytes(127), "\xC3");
  for (const std::int32_t id : {-1, 8192, 248320, INT32_MIN, INT32_MAX}) {
    EXPECT_EQ(demo().bytes(id), "");
    EXPECT_FALSE(demo().is_added(id));
  }
  EXPECT_EQ(demo().decode(Ids{64, -5, 100000, 65}), "ab");
}

TEST(Tokenizer, MergesByRankThenFromTheLeft) {
  // "aaaa" merges pairwise from the left; "bc" (rank 1) wins over "ab" (rank 2).
  const Tokenizer tokenizer = tokenizer_of(small_tokenizer_json({{"a", "a"}, {"b", "c"}, {"a", "b"}, {"aa", "a"}}));
  EXPECT_EQ(tokenizer.encode_text("aaaa"), (Ids{256, 256}));
  EXPECT_EQ(tokenizer.encode_text("aaaaa"), (Ids{256, 259}));
  EXPECT_EQ(tokenizer.encode_text("abc"), (Ids{'a', 257}));
  // The same for words above the length where the algorithm changes.
  EXPECT_EQ(tokenizer.encode_text(std::string(101, 'a')).size(), 50U);
  EXPECT_EQ(tokenizer.encode_text(std::string(101, 'a')).back(), 259);
}

TEST(Tokenizer, ReadsBothSpellingsOfMerges) {
  json file = small_tokenizer_json({{"a", "b"}, {"\u0120", "ab"}, {"ab", "\u010A"}});
  const Ids expected = tokenizer_of(file).encode_text("ab ab\nab");
  EXPECT_EQ(expected, (Ids{256, 257, '\n', 256}));
  for (json& merge : file["model"]["merges"]) merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  EXPECT_EQ(tokenizer_of(file).encode_text("ab ab\nab"), expected);
}

TEST(Tokenizer, IgnoresMergesWhereTheFileSaysSo) {
  json file = small_tokenizer_json({{"a", "b"}, {"b", "c"}, {"a", "bc"}});
  EXPECT_EQ(tokenizer_of(file).encode_text("abc"), (Ids{256, 'c'}));
  file["model"]["ignore_merges"] = true;
  EXPECT_EQ(tokenizer_of(file).encode_text("abc"), Ids{258});
}

TEST(Tokenizer, LongRunsTakeNoQuadraticTime) {
  for (const std::string unit : {"a", "ab", " ", "\n", "=", "7", "\u00E9", "\u0301", "\u65E5"}) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    EXPECT_EQ(demo().decode(demo().encode_text(text)), text) << unit;
  }
  std::string control;
  for (int i = 0; i < 100000; ++i) control += "<|im_end";
  EXPECT_EQ(demo().decode(demo().encode_with_control(control)), control);
}

/// Changes a good file; `expected` must be part of the error.
struct BadFile {
  const char* name;
  std::function<void(json&)> change;
  const char* expected;
};

const std::vector<BadFile>& bad_files() {
  static const std::vector<BadFile> files = {
      {"list", [](json& f) { f = json::array(); }, "not a JSON object"},
      {"empty", [](json& f) { f = json::object(); }, "model.vocab or model.merges is missing"},
      {"no normalizer", [](json& f) { f.erase("normalizer"); }, "field 'normalizer' is missing"},
      {"null normalizer", [](json& f) { f["normalizer"] = nullptr; }, "normalizer is null, expected an object"},
      {"NFKC", [](json& f) { f["normalizer"]["type"] = "NFKC"; },
       "normalizer.type is \"\\\"NFKC\\\"\", expected \"NFC\""},
      {"pre_tokenizer", [](json& f) { f["pre_tokenizer"]["type"] = "Metaspace"; }, "expected \"Sequence\""},
      {"one step", [](json& f) { f["pre_tokenizer"]["pretokenizers"].erase(1); }, "is not Split and ByteLevel"},
      {"pattern", [](json& f) { f["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\w+"; },
       "which lily does not implement"},
      {"string pattern",
       [](json& f) {
         f["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"String", " "}};
       },
       "which lily does not implement"},
      {"invert", [](json& f) { f["pre_tokenizer"]["pretokenizers"][0]["invert"] = true; }, "invert is \"true\""},
      {"prefix space", [](json& f) { f["pre_tokenizer"]["pretokenizers"][1]["add_prefix_space"] = true; },
       "add_prefix_space is \"true\", expected false"},
      {"decoder", [](json& f) { f["decoder"]["type"] = "WordPiece"; }, "decoder.type"},
      {"unigram", [](json& f) { f["model"]["type"] = "Unigram"; }, "model.type"},
      {"dropout", [](json& f) { f["model"]["dropout"] = 0.1; }, "model.dropout"},
      {"suffix", [](json& f) { f["model"]["end_of_word_suffix"] = "</w>"; }, "model.end_of_word_suffix"},
      {"byte_fallback", [](json& f) { f["model"]["byte_fallback"] = true; }, "model.byte_fallback"},
      {"ignore_merges", [](json& f) { f["model"]["ignore_merges"] = 1; }, "model.ignore_merges"},
      {"vocab list", [](json& f) { f["model"]["vocab"] = json::array(); }, "model.vocab or model.merges is missing"},
      {"no merges", [](json& f) { f["model"].erase("merges"); }, "model.vocab or model.merges is missing"},
      {"id text", [](json& f) { f["model"]["vocab"]["a"] = "1"; }, "the id of \"a\" is not an integer"},
      {"id float", [](json& f) { f["model"]["vocab"]["a"] = 97.0; }, "the id of \"a\" is not an integer"},
      {"id object", [](json& f) { f["model"]["vocab"]["a"] = json::object(); }, "the id of \"a\" is not an integer"},
      {"id negative", [](json& f) { f["model"]["vocab"]["a"] = -1; }, "an id below 0"},
      {"id huge", [](json& f) { f["model"]["vocab"]["a"] = 1ULL << 40; }, "above 2^31 - 1"},
      {"id above count", [](json& f) { f["model"]["vocab"]["a"] = 100000; }, "there are only"},
      {"id twice", [](json& f) { f["model"]["vocab"]["a"] = 98; }, "id 98 is both"},
      {"empty piece", [](json& f) { f["model"]["vocab"][""] = 259; }, "a piece is empty"},
      {"foreign character", [](json& f) { f["model"]["vocab"]["\u4E2D"] = 259; }, "stands for no byte"},
      {"no byte",
       [](json& f) {
         f["model"]["vocab"]["zz"] = 'z';
         f["model"]["vocab"].erase("z");
       },
       "no piece for byte 0x7A"},
      {"merge number", [](json& f) { f["model"]["merges"][0] = 5; }, "model.merges[0] is not a string or a pair"},
      {"merge object", [](json& f) { f["model"]["merges"][0] = json::object(); }, "model.merges[0] is not a string"},
      {"merge single", [](json& f) { f["model"]["merges"][0] = {"a"}; }, "model.merges[0] has 1 pieces"},
      {"merge triple",
       [](json& f) {
         f["model"]["merges"][0] = {"a", "b", "c"};
       },
       "model.merges[0] has 3 pieces"},
      {"merge no space", [](json& f) { f["model"]["merges"][0] = "ab"; }, "expected two pieces and one space"},
      {"merge spaces", [](json& f) { f["model"]["merges"][0] = "a b c"; }, "expected two pieces and one space"},
      {"merge empty", [](json& f) { f["model"]["merges"][0] = "a "; }, "a piece is empty"},
      {"merge unknown left", [](json& f) { f["model"]["merges"][0] = "zz b"; },
       "names \"zz\", which model.vocab lacks"},
      {"merge unknown result", [](json& f) { f["model"]["merges"][0] = "b a"; },
       "names \"ba\", which model.vocab lacks"},
      {"added missing", [](json& f) { f.erase("added_tokens"); }, "field 'added_tokens' is missing"},
      {"added object", [](json& f) { f["added_tokens"] = json::object(); },
       "added_tokens is object, expected an array"},
      {"added number", [](json& f) { f["added_tokens"][0] = 3; }, "added_tokens[0] is number, expected an object"},
      {"added empty", [](json& f) { f["added_tokens"][0]["content"] = ""; }, "has 0 bytes, expected 1 to 256"},
      {"added long", [](json& f) { f["added_tokens"][0]["content"] = std::string(300, 'x'); }, "has 300 bytes"},
      {"added id", [](json& f) { f["added_tokens"][0]["id"] = -4; }, "added_tokens[0].id is \"-4\""},
      {"added gap", [](json& f) { f["added_tokens"][1]["id"] = 300; }, "there are only"},
      {"added id twice", [](json& f) { f["added_tokens"][1]["id"] = 257; }, "id 257 is both"},
      {"added twice", [](json& f) { f["added_tokens"][1]["content"] = "<a>"; }, "\"<a>\" is there twice"},
      {"added lstrip", [](json& f) { f["added_tokens"][1]["lstrip"] = true; }, "added_tokens[1].lstrip"},
      {"added from merge",
       [](json& f) {
         f["added_tokens"][0] = {{"id", 256}, {"content", "ab"}};
         f["added_tokens"][1]["id"] = 257;
       },
       "makes or takes the added token \"ab\""},
      {"added byte",
       [](json& f) {
         f["added_tokens"][0] = {{"id", 'q'}, {"content", "q"}};
         f["added_tokens"][1]["id"] = 257;
       },
       "no piece for byte 0x71"},
  };
  return files;
}

TEST(TokenizerFile, BadFilesAreErrorsThatSayWhat) {
  const json good = small_tokenizer_json({{"a", "b"}});
  EXPECT_EQ(tokenizer_of(good).encode_text("ab"), Ids{256});
  for (const BadFile& file : bad_files()) {
    json changed = good;
    file.change(changed);
    try {
      tokenizer_of(changed);
      ADD_FAILURE() << file.name << " was read";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(file.expected), std::string::npos) << file.name << ": " << error.what();
      EXPECT_EQ(std::string(error.what()).find("test.json: "), 0U) << error.what();
    }
  }
}

TEST(TokenizerFile, DamagedTextIsAnError) {
  const std::string good = small_tokenizer_json({{"a", "b"}}).dump();
  for (std::size_t cut = 0; cut < good.size(); cut += 7) {
    EXPECT_THROW(Tokenizer::parse(good.substr(0, cut), "cut.json"), Error);
  }
  EXPECT_THROW(Tokenizer::parse(good + "x", "x.json"), Error);
  EXPECT_THROW(Tokenizer::parse(std::string(1000000, '['), "deep.json"), Error);
  EXPECT_THROW(Tokenizer::parse(R"({"model":{"vocab":{"a":0},"vocab":{"b":1},"merges":[]}})", "twice.json"), Error);
  EXPECT_THROW(Tokenizer::parse(R"({"model":{"vocab":{"a":0,"a":1},"merges":[]}})", "twice.json"), Error);
  EXPECT_THROW(Tokenizer::open(LILY_SOURCE_DIR "/tests"), Error);
}

TEST(TokenizerFile, SharedAndOutOfOrderFieldsAreFine) {
  json file = small_tokenizer_json({{"a", "b"}});
  file["model"]["vocab"]["<a>"] = 257;  // an added token that the vocabulary lists too
  const std::string model = file["model"].dump();
  file.erase("model");
  const std::string rest = file.dump();
  for (const std::string& text :
       {"{\"model\":" + model + "," + rest.substr(1), rest.substr(0, rest.size() - 1) + ",\"model\":" + model + "}"}) {
    const Tokenizer tokenizer = Tokenizer::parse(text, "order.json");
    EXPECT_EQ(tokenizer.size(), 259);
    EXPECT_EQ(tokenizer.encode_with_control("ab<a>"), (Ids{256, 257}));
    EXPECT_EQ(tokenizer.encode_text("ab<a>"), (Ids{256, '<', 'a', '>'}));
  }
}

}  // namespace
}  // namespace lily
