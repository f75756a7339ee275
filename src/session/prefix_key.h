// The name of a token prefix: a 128-bit hash of its ids. Equal prefixes have equal keys in every process.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lily {

struct PrefixKey {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  auto operator<=>(const PrefixKey&) const = default;
  std::string hex() const;
};

/// Keys of tokens[0, length) for each of the ascending `lengths`.
std::vector<PrefixKey> prefix_keys(std::span<const std::int32_t> tokens, std::span<const std::int64_t> lengths);
/// Key of all of `tokens`.
PrefixKey prefix_key(std::span<const std::int32_t> tokens);
/// Keys of the ends of the blocks of kKvBlockTokens that `tokens` consist of; the last block may be shorter.
std::vector<PrefixKey> block_keys(std::span<const std::int32_t> tokens);

}  // namespace lily
