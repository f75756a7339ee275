// Byte-pair encoding as its definition reads, to compare with: quadratic, no table, no heap.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "text/tokenizer_file.h"

namespace lily {

/// Tokens of bytes are the bytes; of equal pairs the later merge counts.
inline std::vector<std::int32_t> naive_bpe(std::span<const Merge> merges, std::string_view word) {
  std::vector<std::int32_t> ids;
  for (const char byte : word) ids.push_back(static_cast<unsigned char>(byte));
  const auto rank_at = [&](std::size_t i) {
    for (std::size_t rank = merges.size(); rank > 0; --rank) {
      if (merges[rank - 1].left == ids[i] && merges[rank - 1].right == ids[i + 1]) return rank - 1;
    }
    return merges.size();
  };
  for (;;) {
    std::size_t best = merges.size();
    std::size_t where = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      if (const std::size_t rank = rank_at(i); rank < best) {
        best = rank;
        where = i;
      }
    }
    if (best == merges.size()) return ids;
    ids[where] = merges[best].result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
}

}  // namespace lily
