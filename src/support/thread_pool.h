// Threads that live as long as the backend and run one small parallel loop after another.
//
// Each thread begins with a run of neighbouring items of its own, since items mostly stand for what lies side by side
// in memory, and memory is read fastest in long runs. It takes them one at a time; when it has none left it takes half
// of what another has, so a thread that the system has put aside holds up only the item it is in. run() returns when
// every item is done, whichever threads did them; a stage costs well under a microsecond while the workers spin, and
// they park after a short while without work.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

#include "support/usable_cores.h"  // IWYU pragma: export

namespace lily {

class ThreadPool {
 public:
  /// `threads` run the items, the caller of run() among them: threads - 1 are started. Throws Error when the system
  /// gives fewer.
  explicit ThreadPool(int threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(item, thread) for each item in [0, items) with thread in [0, size()); the order is not defined.
  /// At most 2^20 - 1 items. Called from one thread at a time, not from inside a body. The body must not throw.
  template <typename Body>
  void run(std::int64_t items, Body&& body) {
    using Callable = std::remove_reference_t<Body>;
    static_assert(std::is_nothrow_invocable_v<Callable&, std::int64_t, int>, "exceptions may not cross threads");
    run_job(items, {[](void* context, std::int64_t item, int thread) noexcept {
                      (*static_cast<Callable*>(context))(item, thread);
                    },
                    const_cast<void*>(static_cast<const void*>(&body))});
  }

 private:
  struct Job {
    void (*call)(void* context, std::int64_t item, int thread) noexcept = nullptr;
    void* context = nullptr;
  };
  /// What a thread has left of a job. Packed into one word, that is only changed from one whole value to another, so a
  /// late thread can never take an item of one job with the data of another: job_ stays as it is until all are done.
  struct Share {
    std::uint32_t epoch = 0;  // the job's number, modulo 2^24
    std::uint32_t begin = 0;
    std::uint32_t end = 0;  // of the items, below 2^20
  };
  static std::uint64_t pack(Share share);
  static Share unpack(std::uint64_t packed);
  struct alignas(64) SharedShare {
    std::atomic<std::uint64_t> packed{0};
  };

  void end_workers();
  void run_job(std::int64_t items, Job job);
  void work(int thread);
  void take_items(int thread, std::uint32_t epoch);
  bool take_own(int thread);
  bool take_from_others(int thread, std::uint32_t epoch);
  bool wait_for_work(std::uint32_t seen_epoch);
  void finish_wait(std::uint32_t epoch);

  std::vector<SharedShare> shares_;  // by thread
  alignas(64) std::atomic<std::uint32_t> epoch_{0};
  alignas(64) std::atomic<std::uint32_t> unfinished_{0};
  alignas(64) std::atomic<int> parked_{0};
  std::atomic<bool> stop_{false};
  Job job_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> workers_;
};

}  // namespace lily
