// A tokenizer.json that fits a test: 256 byte pieces with the ids of their bytes, then what the test adds.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "text/split.h"
#include "text/tokenizer.h"

namespace lily {

/// How tokenizer.json spells a byte.
inline std::string spelling_of_byte(int byte) {
  const auto printable = [](int b) { return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD); };
  int code_point = byte;
  if (!printable(byte)) {
    code_point = 0x100;
    for (int b = 0; b < byte; ++b) code_point += printable(b) ? 0 : 1;
  }
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xC0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 0x3F))};
}

/// `merges` make pieces 256, 257, ... (spelled as in the file); the control tokens <a> and <a>b follow.
inline nlohmann::json small_tokenizer_json(const std::vector<std::pair<std::string, std::string>>& merges) {
  nlohmann::json vocab = nlohmann::json::object();
  for (int byte = 0; byte < 256; ++byte) vocab[spelling_of_byte(byte)] = byte;
  int next = 256;
  nlohmann::json pairs = nlohmann::json::array();
  for (const auto& [left, right] : merges) {
    if (!vocab.contains(left + right)) vocab[left + right] = next++;
    pairs.push_back({left, right});
  }
  return {{"added_tokens", {{{"id", next}, {"content", "<a>"}}, {{"id", next + 1}, {"content", "<a>b"}}}},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer",
           {{"type", "Sequence"},
            {"pretokenizers",
             {{{"type", "Split"}, {"pattern", {{"Regex", kSplitPattern}}}, {"behavior", "Isolated"}},
              {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", pairs}}}};
}

inline Tokenizer tokenizer_of(const nlohmann::json& json) {
  return Tokenizer::parse(json.dump(), "test.json");
}

}  // namespace lily
