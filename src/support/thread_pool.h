// Threads that live as long as the backend and run one small parallel loop after another.
//
// Items are handed out one at a time through a counter, so a thread that the system has put aside holds up only the
// item it is in. run() returns when every item is done, whichever threads did them; a stage costs well under a
// microsecond while the workers spin, and they park after a short while without work.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace lily {

/// Cores that this process may use: affinity mask, cgroup CPU quota, one thread per physical core. At least 1.
int usable_cores();

class ThreadPool {
 public:
  /// `threads` run the items, the caller of run() among them: threads - 1 are started.
  explicit ThreadPool(int threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(item, thread) for each item in [0, items) with thread in [0, size()); the order is not defined.
  /// Called from one thread at a time, not from inside a body. The body must not throw.
  template <typename Body>
  void run(std::int64_t items, Body&& body) {
    using Callable = std::remove_reference_t<Body>;
    static_assert(std::is_nothrow_invocable_v<Callable&, std::int64_t, int>, "exceptions may not cross threads");
    run_job(items, {[](void* context, std::int64_t item, int thread) noexcept {
                      (*static_cast<Callable*>(context))(item, thread);
                    },
                    const_cast<void*>(static_cast<const void*>(&body)), 0});
  }

 private:
  struct Job {
    void (*call)(void* context, std::int64_t item, int thread) noexcept = nullptr;
    void* context = nullptr;
    std::uint32_t items = 0;
  };

  void run_job(std::int64_t items, Job job);
  void work(int thread);
  bool take_item(int thread);
  bool wait_for_work(std::uint32_t seen_epoch);
  void finish_wait();

  // Upper half: the job's number; lower half: items not yet taken. An item is claimed by a compare-exchange on both, so
  // a late thread can never take an item of one job with the data of another: job_ stays as it is until all are done.
  alignas(64) std::atomic<std::uint64_t> ticket_{0};
  alignas(64) std::atomic<std::uint32_t> unfinished_{0};
  alignas(64) std::atomic<int> parked_{0};
  std::atomic<bool> stop_{false};
  Job job_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::thread> workers_;
};

}  // namespace lily
