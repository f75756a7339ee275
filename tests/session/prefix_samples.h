// Prefixes made up for the tests of the prefix cache's two tiers: what they hold depends on their tokens alone.
#pragma once

#include <memory>
#include <numeric>
#include <vector>

#include "session/prefix_key.h"
#include "session/snapshot.h"

namespace lily {

constexpr std::size_t kSampleRecurrentBytes = 1000;
constexpr std::size_t kSampleKvBytes = 8;  // per token
constexpr std::size_t kSampleVocab = 16;

/// `length` tokens; those of different `branch` differ from token `fork` on.
inline std::vector<std::int32_t> sample_tokens(std::int64_t length, std::int64_t fork = 0, std::int32_t branch = 0) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(length));
  std::iota(tokens.begin(), tokens.end(), 0);
  for (std::size_t i = static_cast<std::size_t>(fork); i < tokens.size(); ++i) tokens[i] += 100000 * branch;
  return tokens;
}

inline std::shared_ptr<const CachedPrefix> sample_prefix(const std::vector<std::int32_t>& tokens) {
  auto prefix = std::make_shared<CachedPrefix>();
  prefix->tokens = tokens;
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->recurrent.assign(kSampleRecurrentBytes, static_cast<std::byte>(tokens.back()));
  snapshot->logits.assign(kSampleVocab, static_cast<float>(tokens.back()));
  prefix->snapshot = snapshot;
  for (std::size_t begin = 0; begin < tokens.size(); begin += kKvBlockTokens) {
    const std::size_t end = std::min(begin + static_cast<std::size_t>(kKvBlockTokens), tokens.size());
    auto block = std::make_shared<KvBlock>();
    for (std::size_t i = begin; i < end; ++i)
      block->insert(block->end(), kSampleKvBytes, static_cast<std::byte>(tokens[i] % 251));
    prefix->blocks.push_back(block);
  }
  return prefix;
}

inline bool equal(const CachedPrefix& a, const CachedPrefix& b) {
  const auto same_block = [](const auto& x, const auto& y) { return *x == *y; };
  return a.tokens == b.tokens && a.snapshot->recurrent == b.snapshot->recurrent &&
         a.snapshot->logits == b.snapshot->logits &&
         std::equal(a.blocks.begin(), a.blocks.end(), b.blocks.begin(), b.blocks.end(), same_block);
}

}  // namespace lily
