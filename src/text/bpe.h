// Byte-pair encoding of one word: its bytes become tokens, then the adjacent pair of lowest rank (the leftmost of
// equals) is replaced by its result until no pair can merge.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/tokenizer_file.h"

namespace lily {

class Bpe {
 public:
  /// `bytes[b]` is the token of byte b. Of equal pairs the later one counts.
  Bpe(std::span<const std::int32_t, 256> bytes, std::span<const Merge> merges);

  /// Appends the tokens of `word`. Time O(n log n).
  void encode(std::string_view word, std::vector<std::int32_t>& out) const;

 private:
  static constexpr std::uint32_t kNoRank = 0xFFFFFFFF;
  /// One slot of an open-addressing hash table.
  struct Pair {
    std::int32_t left = -1, right = -1;
    std::uint32_t rank = kNoRank;
    std::int32_t result = -1;
  };
  std::size_t slot_of(std::int32_t left, std::int32_t right) const;
  const Pair& find(std::int32_t left, std::int32_t right) const { return pairs_[slot_of(left, right)]; }
  void encode_short(std::string_view word, std::vector<std::int32_t>& out) const;
  void encode_long(std::string_view word, std::vector<std::int32_t>& out) const;

  std::array<std::int32_t, 256> bytes_;
  std::vector<Pair> pairs_;  // a power of two of slots, at most half full
};

}  // namespace lily
