// A session is one mutable timeline of tokens on one backend. `sync` makes it hold exactly the given tokens: it reuses
// the common prefix, extends it, or rebuilds. The KV cache can be cut at any token, the recurrent state cannot:
// snapshots of it are kept at chosen positions, and going back means the nearest one before, then computing from there.
//
// An exception from the backend during a computation leaves the session empty, never inconsistent.
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
#include "session/snapshot.h"

namespace lily {

struct SyncResult {
  std::int64_t reused = 0;    // tokens that were not computed again
  std::int64_t computed = 0;  // tokens that went through the model
  bool cancelled = false;     // stopped between two chunks; the session holds what was done
};

struct SyncOptions {
  /// Prefix lengths at which to keep a snapshot besides the prompt's end, in any order. Those out of range are ignored.
  std::vector<std::int64_t> snapshots = {};
  /// Called before the first chunk and after each with tokens done and the whole length; false cancels.
  std::function<bool(std::int64_t, std::int64_t)> progress = {};
};

class Session {
 public:
  struct Limits {
    std::int64_t capacity = 32768;   // tokens, prompt and reply
    std::int64_t prefill_chunk = 0;  // tokens in one forward pass; 0: what the backend likes best
    std::size_t snapshot_bytes = std::size_t{2}
                                 << 30;     // budget for this session's snapshots; the longest unused go first
    std::int64_t snapshot_interval = 4096;  // also one every so many tokens of a prefill; 0: none
  };

  /// `model` and `ops` must outlive the session.
  Session(const Model& model, Ops& ops, const Limits& limits);
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Makes the timeline equal to `tokens` (at least one); logits() are then those after its last token.
  /// Throws Error when there are more tokens than the capacity or ids that the model does not have.
  SyncResult sync(std::span<const std::int32_t> tokens, const SyncOptions& options = {});

  /// sync in steps, so that a scheduler can do other work between chunks: begin() reuses what can be reused and gives
  /// the number of reused tokens, then each advance() computes one chunk of at most `max_rows` tokens until pending()
  /// is 0. `on_logits(position, logits)`, if given, sees the logits after every computed token, not only the last
  /// one's.
  using RowLogits = std::function<void(std::int64_t, std::span<const float>)>;
  std::int64_t begin(std::span<const std::int32_t> tokens, std::span<const std::int64_t> snapshots = {});
  void advance(std::int64_t max_rows, const RowLogits& on_logits = {});
  std::int64_t pending() const { return static_cast<std::int64_t>(pending_.size()); }

  /// Appends one token; logits() are those after it. Throws Error when the capacity is reached.
  void decode(std::int32_t token);
  /// One decode step for several sessions of the same model and ops, in one forward pass.
  static void decode(std::span<Session* const> sessions, std::span<const std::int32_t> tokens);

  /// Drawing: the device chooses the tokens (DecodeLoop), so that none waits for the host. Not with every backend.
  bool can_draw();
  /// `start.token` is the next of the timeline; the start's position is filled in here. The start's spans and pointers
  /// are used only inside the call, `uniform` until the drawing ends. logits() stand still while drawing.
  void start_drawing(DecodeLoop::Start start);
  bool drawing() const { return drawing_; }
  /// The next token. The one before it is in the timeline by then. `ahead`: the device goes on with this token at once,
  /// which only helps if it is going to be wanted. A stop token ends the drawing and is not in the timeline.
  std::int32_t draw(bool ahead);
  /// Ends the drawing, if there is one; logits() are then those after the timeline's last token, which is the last one
  /// that draw() gave if the device ran ahead, else the one before it.
  void stop_drawing();
  /// Ends it so that the host can go on: the last token that draw() gave (or the start's) is in the timeline, and the
  /// result is the one that the device drew after it.
  std::int32_t leave_drawing();

  /// Keeps a snapshot at the present end.
  void snapshot();
  /// Cuts the timeline to its first `length` tokens, computing from the nearest snapshot where needed.
  SyncResult rewind(std::int64_t length);
  /// Forgets everything.
  void reset();
  /// Becomes exactly `prefix`, which came from a session of the same model and state layout. Nothing is computed.
  void adopt(const CachedPrefix& prefix);

  /// How many of `tokens` begin() would reuse.
  std::int64_t reusable(std::span<const std::int32_t> tokens) const;

  std::span<const std::int32_t> tokens() const { return tokens_; }
  std::span<const float> logits() const { return logits_; }  // [vocab]; empty before the first token
  std::int64_t capacity() const { return limits_.capacity; }
  std::int64_t prefill_chunk() const { return limits_.prefill_chunk; }
  /// Lengths of the prefixes that can be gone back to without computing, ascending.
  std::vector<std::int64_t> snapshot_positions() const;
  /// The snapshot at one of these positions.
  std::shared_ptr<const Snapshot> snapshot_at(std::int64_t position) const;
  /// KV of the tokens [begin, end), token by token.
  void read_kv(std::int64_t begin, std::int64_t end, std::span<std::byte> out) const;
  std::size_t kv_bytes_per_token() const { return state_->kv_bytes_per_token(); }

  /// One checksummed file: tokens, KV, recurrent state, logits, snapshots (format: session_file.h). `model_id` ties it
  /// to a checkpoint. A loaded session continues bit-identically. A file that is damaged or of another model, backend
  /// layout or larger than the capacity is refused with an Error and the session stays as it was.
  void save(const std::filesystem::path& file, std::uint64_t model_id) const;
  void load(const std::filesystem::path& file, std::uint64_t model_id);

 private:
  struct KeptSnapshot {
    std::shared_ptr<const Snapshot> snapshot;
    std::uint64_t last_use = 0;
  };

  void check_tokens(std::span<const std::int32_t> tokens) const;
  void check_room() const;
  void go_back_to(std::int64_t common);
  void queue_draw();
  std::int32_t take_drawn();
  void end_drawing();
  std::int64_t next_stop(std::int64_t max_rows) const;
  void keep(std::int64_t position, std::shared_ptr<const Snapshot> snapshot);

  const Model& model_;
  Ops& ops_;
  Limits limits_;
  std::unique_ptr<SequenceState> state_;
  std::vector<std::int32_t> tokens_;
  std::vector<float> logits_;
  std::vector<std::int32_t> pending_;               // tokens that advance() still has to compute
  std::vector<std::int64_t> snapshots_at_;          // where advance() stops to keep a snapshot, ascending
  std::map<std::int64_t, KeptSnapshot> snapshots_;  // by prefix length
  std::uint64_t clock_ = 0;                         // counts uses of snapshots

  std::unique_ptr<DecodeLoop> loop_;  // made when first asked for, then kept: it holds a recorded step
  bool loop_asked_for_ = false;
  bool drawing_ = false;
  std::int32_t next_token_ = 0;      // drawn, not in the timeline yet
  bool stepped_ = false;             // a step of this drawing was taken: the device has newer logits than logits_
  std::int64_t queued_ = 0;          // steps on the device whose token was not taken
  std::vector<std::int32_t> stops_;  // of the drawing
};

}  // namespace lily
