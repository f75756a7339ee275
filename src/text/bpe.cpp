#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <queue>

#include "support/error.h"

namespace lily {
namespace {

// Up to this length a scan of all ranks per merge beats a heap.
constexpr std::size_t kShortWord = 48;

}  // namespace

Bpe::Bpe(std::span<const std::int32_t, 256> bytes, std::span<const Merge> merges)
    : pairs_(std::bit_ceil(2 * merges.size() + 2)) {
  std::copy(bytes.begin(), bytes.end(), bytes_.begin());
  LILY_CHECK(merges.size() < kNoRank);
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge& merge = merges[rank];
    pairs_[slot_of(merge.left, merge.right)] = {merge.left, merge.right, static_cast<std::uint32_t>(rank),
                                                merge.result};
  }
}

std::size_t Bpe::slot_of(std::int32_t left, std::int32_t right) const {
  std::uint64_t key =
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  key ^= key >> 32;
  key *= 0x9E3779B97F4A7C15U;
  key ^= key >> 29;
  const std::size_t mask = pairs_.size() - 1;
  std::size_t slot = key & mask;
  while (pairs_[slot].left >= 0 && (pairs_[slot].left != left || pairs_[slot].right != right)) slot = (slot + 1) & mask;
  return slot;
}

void Bpe::encode(std::string_view word, std::vector<std::int32_t>& out) const {
  if (word.size() <= kShortWord) {
    encode_short(word, out);
  } else {
    encode_long(word, out);
  }
}

void Bpe::encode_short(std::string_view word, std::vector<std::int32_t>& out) const {
  std::array<std::int32_t, kShortWord> ids;
  std::array<std::uint32_t, kShortWord> ranks;  // of the pair that begins here
  std::array<std::int32_t, kShortWord> results;
  std::size_t count = word.size();
  for (std::size_t i = 0; i < count; ++i) ids[i] = bytes_[static_cast<unsigned char>(word[i])];
  const auto look_up = [&](std::size_t i) {
    const Pair& pair = find(ids[i], ids[i + 1]);
    ranks[i] = pair.rank;
    results[i] = pair.result;
  };
  if (count == 0) return;
  for (std::size_t i = 0; i + 1 < count; ++i) look_up(i);
  ranks[count - 1] = kNoRank;  // no pair begins at the last one
  results[count - 1] = -1;
  while (count > 1) {
    const auto best =
        static_cast<std::size_t>(std::min_element(ranks.begin(), ranks.begin() + (count - 1)) - ranks.begin());
    if (ranks[best] == kNoRank) break;
    ids[best] = results[best];
    std::copy(ids.begin() + best + 2, ids.begin() + count, ids.begin() + best + 1);
    std::copy(ranks.begin() + best + 2, ranks.begin() + count, ranks.begin() + best + 1);
    std::copy(results.begin() + best + 2, results.begin() + count, results.begin() + best + 1);
    --count;
    if (best + 1 < count) look_up(best);
    if (best > 0) look_up(best - 1);
  }
  out.insert(out.end(), ids.begin(), ids.begin() + count);
}

void Bpe::encode_long(std::string_view word, std::vector<std::int32_t>& out) const {
  constexpr std::uint32_t kNone = 0xFFFFFFFF;
  struct Node {
    std::uint32_t previous, next;
    std::int32_t id;  // -1: merged into the one before
  };
  LILY_CHECK(word.size() < kNone);
  const auto count = static_cast<std::uint32_t>(word.size());
  std::vector<Node> nodes(count);
  // rank << 32 | position: the lowest rank first, then the leftmost.
  std::priority_queue<std::uint64_t, std::vector<std::uint64_t>, std::greater<>> queue;
  const auto consider = [&](std::uint32_t at) {
    const std::uint32_t rank = find(nodes[at].id, nodes[nodes[at].next].id).rank;
    if (rank != kNoRank) queue.push(static_cast<std::uint64_t>(rank) << 32 | at);
  };
  for (std::uint32_t i = 0; i < count; ++i) {
    nodes[i] = {i > 0 ? i - 1 : kNone, i + 1 < count ? i + 1 : kNone, bytes_[static_cast<unsigned char>(word[i])]};
  }
  for (std::uint32_t i = 0; i + 1 < count; ++i) consider(i);
  while (!queue.empty()) {
    const auto rank = static_cast<std::uint32_t>(queue.top() >> 32);
    const auto at = static_cast<std::uint32_t>(queue.top());
    queue.pop();
    Node& node = nodes[at];
    if (node.id < 0 || node.next == kNone) continue;
    const Pair& pair = find(node.id, nodes[node.next].id);
    if (pair.rank != rank) continue;  // one of the two has changed since
    node.id = pair.result;
    nodes[node.next].id = -1;
    node.next = nodes[node.next].next;
    if (node.next != kNone) {
      nodes[node.next].previous = at;
      consider(at);
    }
    if (node.previous != kNone) consider(node.previous);
  }
  for (std::uint32_t at = 0; at != kNone; at = nodes[at].next) out.push_back(nodes[at].id);
}

}  // namespace lily
