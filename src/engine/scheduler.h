// What the engine's thread does, one round at a time: give waiting jobs a session, compute one prefill chunk, decode
// one token of every running reply in a batch; a reply alone is left to the device to draw, if it can. It knows nothing
// of threads but the jobs' event channels.
//
// Prefills are interleaved so that nobody starves: the shortest rest goes first, but every fourth chunk belongs to the
// job that waits longest. While replies are running, chunks are short, so that their tokens keep coming.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "engine/job.h"
#include "session/prefix_cache.h"
#include "session/prefix_store.h"

namespace lily {

class Scheduler {
 public:
  Scheduler(LoadedModel& model, const EngineOptions& options);

  bool has_free_slot() const;
  bool idle() const;
  /// Gives the job a session. Only with a free slot.
  void start(std::shared_ptr<Job> job);
  /// One round over all slots; jobs that end are answered and leave their slot.
  void step();
  /// Ends every running job as cancelled.
  void cancel_all();
  /// Up to the last token and chunk, of running jobs too; waiting ones are not its business.
  const EngineStats& stats() const { return stats_; }
  /// What the prefixes on disk take now; any thread may ask.
  std::size_t disk_bytes() const { return store_ ? store_->bytes() : 0; }

 private:
  struct Slot {
    std::unique_ptr<Session> session;
    std::shared_ptr<Job> job;  // none: free
    Job::Clock::time_point last_use;
    std::int64_t touched = 0;  // tokens whose KV memory the session has taken
    std::int64_t checked = 0;  // prompt tokens whose reuse --verify-cache still has to check
  };

  Slot& place(const Job& job, CacheUse& use);
  CacheUse nearest_known(std::span<const std::int32_t> prompt, const PrefixCache::Match& match) const;
  void require_memory(const Job& job, const Slot& slot);
  void drop_cancelled();
  void prefill_one_chunk();
  Slot* next_prefill();
  void score_prompt(Job& job, std::int64_t position, std::span<const float> logits) const;
  void prompt_done(Slot& slot);
  void verify(const Slot& slot) const;
  GeneratedToken next_token(Slot& slot, bool alone);
  void decode_one_token_each();
  void finish(Slot& slot, FinishReason reason);
  void fail(const Job& job, const std::exception& error);
  void fail(Slot& slot, const std::exception& error);
  void remember(Session& session);

  LoadedModel& model_;
  EngineOptions options_;
  PrefixStore::Shape shape_;
  std::vector<Slot> slots_;
  PrefixCache cache_;
  std::unique_ptr<PrefixStore> store_;
  std::uint64_t chunks_ = 0;
  EngineStats stats_;
};

}  // namespace lily
