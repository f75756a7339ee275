// The prefix cache's second tier: prefixes on disk, so that a restart, or a kill -9, costs no long prefill. One
// directory for each checkpoint and state layout:
//
//   <key>-<tokens>.prefix   "LILYPFX1", tokens int32[], recurrent state, logits float32[]
//   <key>.kv                "LILYKVB1", one KV block; <key> is that of the prefix which ends with the block
//
// Every file is whole or refused (support/checked_file.h); a damaged or incomplete prefix counts as not there and is
// removed. Files are bounded by a budget: those unused for longest go first. A use renews a prefix together with its
// blocks. The token ids of all prefixes are in memory too, to tell where a prompt leaves them. Thread-safe: lookups
// come from the engine's thread, files are written by a thread of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "session/prefix_key.h"
#include "session/snapshot.h"

namespace lily {

class PrefixStore {
 public:
  struct Shape {
    std::uint64_t model_id = 0;
    std::string layout;  // SequenceState::layout(); part of a directory's name
    std::size_t recurrent_bytes = 0;
    std::size_t kv_bytes_per_token = 0;
    std::size_t vocab = 0;
  };

  /// Creates `directory` where needed. Throws Error when it cannot be written.
  PrefixStore(const std::filesystem::path& directory, const Shape& shape, std::size_t budget_bytes);
  PrefixStore(const PrefixStore&) = delete;
  PrefixStore& operator=(const PrefixStore&) = delete;
  /// Writes what is still queued.
  ~PrefixStore();

  /// The longest stored prefix of `tokens` that is longer than `longer_than`, or none.
  std::shared_ptr<const CachedPrefix> find(std::span<const std::int32_t> tokens, std::int64_t longer_than);
  struct Nearest {
    std::int64_t common = 0;                  // longest beginning shared with any stored prefix
    std::optional<std::int32_t> known_token;  // what one of those prefixes has there, if one goes on
  };
  Nearest nearest(std::span<const std::int32_t> tokens) const;
  /// Queues a prefix for writing. When the writer cannot keep up, the oldest queued ones are dropped.
  void insert(std::shared_ptr<const CachedPrefix> prefix);
  /// Waits until nothing is queued.
  void flush();
  std::size_t bytes() const;

 private:
  struct FileEntry {
    std::size_t bytes = 0;
    std::filesystem::file_time_type last_use;
    std::vector<std::int32_t> tokens;  // of a prefix
  };

  void scan();
  void write_queued();
  void write(const CachedPrefix& prefix);
  std::shared_ptr<CachedPrefix> load(const std::string& name, std::span<const std::int32_t> tokens);
  std::shared_ptr<const KvBlock> load_block(const std::string& name, std::size_t bytes);
  void renew(const std::string& name);
  void forget(const std::string& name);
  void evict();

  std::filesystem::path directory_;
  Shape shape_;
  std::size_t budget_;
  mutable std::mutex mutex_;
  std::map<std::string, FileEntry> files_;        // by name
  std::map<std::int64_t, std::int64_t> lengths_;  // prefix length -> number of .prefix files
  std::size_t bytes_ = 0;
  std::deque<std::shared_ptr<const CachedPrefix>> queue_;
  bool writing_ = false;
  bool stopping_ = false;
  std::condition_variable changed_;
  std::thread writer_;
};

}  // namespace lily
