// The prefix cache in memory: whole prefixes (tokens, recurrent state, KV) found by the tokens they begin with, within
// a budget of bytes. Prefixes that begin alike share their full KV blocks. Not thread-safe: the engine's thread owns
// it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "session/prefix_key.h"
#include "session/session.h"
#include "session/snapshot.h"

namespace lily {

class PrefixCache {
 public:
  struct Match {
    std::shared_ptr<const CachedPrefix> prefix;  // the longest one that the tokens begin with, or none
    std::int64_t common = 0;                     // longest beginning shared with any cached prefix
    std::optional<std::int32_t> known_token;     // what one of those prefixes has there, if one goes on
  };

  explicit PrefixCache(std::size_t budget_bytes) : budget_(budget_bytes) {}

  Match find(std::span<const std::int32_t> tokens);
  /// Adds the session's snapshots that are not there yet, and gives them. The least recently used prefixes go when the
  /// budget is reached.
  std::vector<std::shared_ptr<const CachedPrefix>> insert(const Session& session);
  void insert(std::shared_ptr<const CachedPrefix> prefix);

  std::size_t bytes() const { return bytes_; }
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::shared_ptr<const CachedPrefix> prefix;
    std::vector<PrefixKey> blocks;
    std::uint64_t last_use = 0;
  };
  struct SharedBlock {
    std::shared_ptr<const KvBlock> block;
    std::int64_t users = 0;  // entries that hold it
  };

  std::shared_ptr<const KvBlock> block_of(const Session& session, const PrefixKey& key, std::int64_t index,
                                          std::int64_t length) const;
  void add(std::shared_ptr<const CachedPrefix> prefix, std::vector<PrefixKey> blocks);
  void evict_oldest();

  std::size_t budget_;
  std::size_t bytes_ = 0;
  std::uint64_t clock_ = 0;
  std::map<PrefixKey, Entry> entries_;
  std::map<PrefixKey, SharedBlock> blocks_;
};

}  // namespace lily
