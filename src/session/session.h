// A session is one mutable timeline of tokens on one backend. `sync` makes it hold exactly the given tokens: it reuses
// the common prefix, extends it, or rebuilds. The KV cache can be cut at any token, the recurrent state cannot:
// snapshots of it are kept at chosen positions, and a rewind goes back to the nearest one and recomputes from there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "model/model.h"

namespace lily {

/// What sync did.
struct SyncResult {
  std::int64_t reused = 0;    // tokens that were not computed again
  std::int64_t computed = 0;  // tokens that went through the model
  bool cancelled = false;     // stopped between two chunks; the session holds what was done
};

struct SyncOptions {
  /// Prefix lengths at which to keep a snapshot of the recurrent state, besides the prompt's end. Ascending or not.
  std::vector<std::int64_t> snapshots;
  /// Called after each chunk with tokens done and tokens to do; false cancels.
  std::function<bool(std::int64_t, std::int64_t)> progress;
};

class Session {
 public:
  struct Limits {
    std::int64_t capacity = 32768;                      // tokens, prompt and reply
    std::int64_t prefill_chunk = 512;                   // tokens per forward pass
    std::size_t snapshot_bytes = std::size_t{2} << 30;  // budget for this session's snapshots; the oldest go first
    std::int64_t snapshot_interval = 4096;              // also one every so many tokens in a long prefill; 0: none
  };

  Session(const Model& model, Ops& ops, const Limits& limits);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Makes the timeline equal to `tokens` (at least one) and logits() those after its last token.
  /// Throws Error when tokens are more than the capacity or not ids of the model.
  SyncResult sync(std::span<const std::int32_t> tokens, const SyncOptions& options = {});
  /// Appends one token; logits() are those after it.
  void decode(std::int32_t token);
  /// Keeps a snapshot at the present end.
  void snapshot();
  /// Cuts the timeline to `length` tokens, recomputing from the nearest snapshot where needed.
  void rewind(std::int64_t length);

  std::span<const std::int32_t> tokens() const { return tokens_; }
  std::span<float> logits() { return logits_; }  // [vocab]; a sampler may change them in place
  std::int64_t capacity() const { return limits_.capacity; }
  /// Lengths of the prefixes that can be gone back to without computing.
  std::vector<std::int64_t> snapshot_positions() const;

  /// One file with checksums: tokens, KV, recurrent state, snapshots, logits. A loaded session continues
  /// bit-identically. `model_id` ties the file to a checkpoint. Written to a temporary file and renamed.
  void save(const std::filesystem::path& file, std::uint64_t model_id) const;
  void load(const std::filesystem::path& file, std::uint64_t model_id);

 private:
  using Bytes = std::vector<std::byte>;

  void compute(std::span<const std::int32_t> tokens);
  std::int64_t reuse_prefix(std::span<const std::int32_t> tokens);
  void keep_snapshot();

  const Model& model_;
  Ops& ops_;
  Limits limits_;
  std::unique_ptr<SequenceState> state_;
  std::vector<std::int32_t> tokens_;
  std::vector<float> logits_;
  std::map<std::int64_t, Bytes> snapshots_;  // prefix length -> recurrent state after it
};

}  // namespace lily
