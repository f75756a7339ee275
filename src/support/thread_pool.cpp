#include "support/thread_pool.h"

#include <algorithm>
#include <chrono>

#include "support/error.h"

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace lily {
namespace {

constexpr std::uint64_t kItemMask = 0xffffffffU;
constexpr std::int64_t kMaxItems = 0xffffffff;

std::uint32_t epoch_of(std::uint64_t ticket) {
  return static_cast<std::uint32_t>(ticket >> 32);
}

void relax() {
#if defined(__x86_64__) || defined(_M_X64)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Long enough to bridge the serial work between two stages, short enough not to burn a core that others need.
constexpr auto kSpinTime = std::chrono::microseconds(60);
constexpr int kSpinsPerClockRead = 32;

// Spins until done() or the time is over.
template <typename Done>
bool spin(const Done& done) {
  const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  while (true) {
    for (int i = 0; i < kSpinsPerClockRead; ++i) {
      if (done()) return true;
      relax();
    }
    if (std::chrono::steady_clock::now() > deadline) return false;
  }
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  LILY_CHECK(threads >= 1);
  workers_.reserve(static_cast<std::size_t>(threads - 1));
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_.store(true);
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_job(std::int64_t items, Job job) {
  LILY_CHECK(items >= 0 && items <= kMaxItems);
  if (items == 0) return;
  if (workers_.empty() || items == 1) {
    for (std::int64_t i = 0; i < items; ++i) job.call(job.context, i, 0);
    return;
  }
  job.items = static_cast<std::uint32_t>(items);
  job_ = job;
  unfinished_.store(job.items, std::memory_order_relaxed);
  const std::uint64_t epoch = epoch_of(ticket_.load(std::memory_order_relaxed)) + std::uint64_t{1};
  ticket_.store((epoch << 32) | job.items);  // sequentially consistent, as is the load of parked_: see wait_for_work
  if (parked_.load() > 0) {
    { const std::lock_guard lock(mutex_); }
    wake_.notify_all();
  }
  while (take_item(0)) {
  }
  finish_wait();
}

// Claims one item and runs it; false when none is left.
bool ThreadPool::take_item(int thread) {
  std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
  do {
    if ((ticket & kItemMask) == 0) return false;
  } while (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel, std::memory_order_acquire));
  const Job job = job_;
  job.call(job.context, static_cast<std::int64_t>(job.items - (ticket & kItemMask)), thread);
  unfinished_.fetch_sub(1, std::memory_order_release);
  return true;
}

// The caller has no items left; others may still be in theirs. Once it is clear that a thread was put aside in the
// middle of one, give it the core.
void ThreadPool::finish_wait() {
  const auto done = [this] { return unfinished_.load(std::memory_order_acquire) == 0; };
  while (!spin(done)) std::this_thread::yield();
}

// True when there is a job newer than `seen_epoch`, false to stop.
bool ThreadPool::wait_for_work(std::uint32_t seen_epoch) {
  const auto ready = [&] { return epoch_of(ticket_.load()) != seen_epoch || stop_.load(); };
  if (!spin(ready)) {
    std::unique_lock lock(mutex_);
    // Either run_job sees parked_ > 0 after its store of the ticket, or ready() sees that store.
    parked_.fetch_add(1);
    wake_.wait(lock, ready);
    parked_.fetch_sub(1);
  }
  return !stop_.load();
}

void ThreadPool::work(int thread) {
  std::uint32_t seen_epoch = 0;
  while (wait_for_work(seen_epoch)) {
    seen_epoch = epoch_of(ticket_.load());
    while (take_item(thread)) {
    }
  }
}

}  // namespace lily
