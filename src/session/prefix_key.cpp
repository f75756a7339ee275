#include "session/prefix_key.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

#include "session/snapshot.h"
#include "support/error.h"

namespace lily {

std::string PrefixKey::hex() const {
  return fmt::format("{:016x}{:016x}", high, low);
}

std::vector<PrefixKey> prefix_keys(std::span<const std::int32_t> tokens, std::span<const std::int64_t> lengths) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> hash(XXH3_createState(), &XXH3_freeState);
  XXH3_128bits_reset(hash.get());
  std::vector<PrefixKey> keys;
  std::int64_t done = 0;
  for (const std::int64_t length : lengths) {
    LILY_CHECK(done <= length && length <= static_cast<std::int64_t>(tokens.size()));
    const auto part = tokens.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(length - done));
    XXH3_128bits_update(hash.get(), part.data(), part.size_bytes());
    const XXH128_hash_t digest = XXH3_128bits_digest(hash.get());
    keys.push_back({digest.high64, digest.low64});
    done = length;
  }
  return keys;
}

PrefixKey prefix_key(std::span<const std::int32_t> tokens) {
  const auto length = static_cast<std::int64_t>(tokens.size());
  return prefix_keys(tokens, std::span(&length, 1)).front();
}

std::vector<PrefixKey> block_keys(std::span<const std::int32_t> tokens) {
  const auto length = static_cast<std::int64_t>(tokens.size());
  std::vector<std::int64_t> ends;
  for (std::int64_t end = kKvBlockTokens; end < length; end += kKvBlockTokens) ends.push_back(end);
  if (length > 0) ends.push_back(length);
  return prefix_keys(tokens, ends);
}

}  // namespace lily
