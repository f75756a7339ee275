#include "checkpoint/parallel_items.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>

#include "support/thread_pool.h"

namespace lily {

void parallel_items(std::size_t items, int threads, const std::function<void(std::size_t, std::size_t)>& work,
                    const std::function<void(std::size_t)>& done) {
  constexpr std::size_t kRound = 64;  // items between two reports
  ThreadPool pool(std::max(1, threads));
  std::mutex mutex;
  std::exception_ptr failure;
  std::atomic<bool> stop{false};
  for (std::size_t first = 0; first < items; first += kRound) {
    const std::size_t count = std::min(kRound, items - first);
    pool.run(static_cast<std::int64_t>(count), [&](std::int64_t item, int thread) noexcept {
      if (stop) return;
      try {
        work(first + static_cast<std::size_t>(item), static_cast<std::size_t>(thread));
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        stop = true;
      }
    });
    if (failure) std::rethrow_exception(failure);
    for (std::size_t i = first; i < first + count; ++i) done(i);
  }
}

}  // namespace lily
