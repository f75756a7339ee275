#include "session/prefix_cache.h"

#include <algorithm>

#include "support/error.h"

namespace lily {

PrefixCache::Match PrefixCache::find(std::span<const std::int32_t> tokens) {
  Match match;
  Entry* best = nullptr;
  for (auto& [key, entry] : entries_) {
    const std::vector<std::int32_t>& known = entry.prefix->tokens;
    const std::size_t n = std::min(known.size(), tokens.size());
    const std::int64_t common =
        std::mismatch(known.begin(), known.begin() + static_cast<std::ptrdiff_t>(n), tokens.begin()).first -
        known.begin();
    const bool goes_on = common < entry.prefix->length();
    if (common > match.common || (common == match.common && goes_on && !match.known_token)) {
      match.common = common;
      match.known_token.reset();
      if (goes_on) match.known_token = known[static_cast<std::size_t>(common)];
    }
    const bool whole = common == entry.prefix->length();
    if (whole && (best == nullptr || common > best->prefix->length())) best = &entry;
  }
  if (best != nullptr) {
    best->last_use = ++clock_;
    match.prefix = best->prefix;
  }
  return match;
}

std::vector<std::shared_ptr<const CachedPrefix>> PrefixCache::insert(const Session& session) {
  std::vector<std::shared_ptr<const CachedPrefix>> added;
  const std::vector<std::int64_t> positions = session.snapshot_positions();
  const std::vector<PrefixKey> keys = prefix_keys(session.tokens(), positions);
  for (std::size_t i = 0; i < positions.size(); ++i) {
    if (const auto found = entries_.find(keys[i]); found != entries_.end()) {
      found->second.last_use = ++clock_;
      continue;
    }
    const auto tokens = session.tokens().first(static_cast<std::size_t>(positions[i]));
    auto prefix = std::make_shared<CachedPrefix>();
    prefix->tokens.assign(tokens.begin(), tokens.end());
    prefix->snapshot = session.snapshot_at(positions[i]);
    std::vector<PrefixKey> blocks = block_keys(tokens);
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      prefix->blocks.push_back(block_of(session, blocks[b], static_cast<std::int64_t>(b), positions[i]));
    }
    added.push_back(prefix);
    add(std::move(prefix), std::move(blocks));
  }
  return added;
}

void PrefixCache::insert(std::shared_ptr<const CachedPrefix> prefix) {
  if (entries_.contains(prefix_key(prefix->tokens))) return;
  std::vector<PrefixKey> blocks = block_keys(prefix->tokens);
  add(std::move(prefix), std::move(blocks));
}

std::shared_ptr<const KvBlock> PrefixCache::block_of(const Session& session, const PrefixKey& key, std::int64_t index,
                                                     std::int64_t length) const {
  if (const auto found = blocks_.find(key); found != blocks_.end()) return found->second.block;
  const std::int64_t begin = index * kKvBlockTokens;
  const std::int64_t end = std::min(begin + kKvBlockTokens, length);
  auto block = std::make_shared<KvBlock>(static_cast<std::size_t>(end - begin) * session.kv_bytes_per_token());
  session.read_kv(begin, end, *block);
  return block;
}

void PrefixCache::add(std::shared_ptr<const CachedPrefix> prefix, std::vector<PrefixKey> blocks) {
  LILY_CHECK(prefix->blocks.size() == blocks.size());
  bytes_ += prefix->snapshot->bytes();
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    SharedBlock& shared = blocks_[blocks[b]];
    if (shared.users++ == 0) {
      shared.block = prefix->blocks[b];
      bytes_ += shared.block->size();
    }
  }
  const PrefixKey key = prefix_key(prefix->tokens);
  entries_[key] = {std::move(prefix), std::move(blocks), ++clock_};
  while (bytes_ > budget_ && !entries_.empty()) evict_oldest();
}

void PrefixCache::evict_oldest() {
  const auto oldest = std::min_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
    return a.second.last_use < b.second.last_use;
  });
  bytes_ -= oldest->second.prefix->snapshot->bytes();
  for (const PrefixKey& key : oldest->second.blocks) {
    const auto shared = blocks_.find(key);
    if (--shared->second.users > 0) continue;
    bytes_ -= shared->second.block->size();
    blocks_.erase(shared);
  }
  entries_.erase(oldest);
}

}  // namespace lily
