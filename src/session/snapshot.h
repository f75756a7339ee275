// What can be kept of a timeline so that coming back to it costs no computation: plain host memory, immutable once made
// and shared between a session, the prefix cache and the writer of its disk tier.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace lily {

/// The state after a prefix, without its KV.
struct Snapshot {
  std::vector<std::byte> recurrent;
  std::vector<float> logits;  // [vocab], after the prefix's last token

  std::size_t bytes() const { return recurrent.size() + logits.size() * sizeof(float); }
};

/// KV of up to kKvBlockTokens consecutive tokens, token by token, in the backend's layout.
using KvBlock = std::vector<std::byte>;
inline constexpr std::int64_t kKvBlockTokens = 256;

/// A whole prefix. Prefixes that begin alike share their full blocks.
struct CachedPrefix {
  std::vector<std::int32_t> tokens;
  std::shared_ptr<const Snapshot> snapshot;
  std::vector<std::shared_ptr<const KvBlock>> blocks;  // all full but the last

  std::int64_t length() const { return static_cast<std::int64_t>(tokens.size()); }
};

}  // namespace lily
