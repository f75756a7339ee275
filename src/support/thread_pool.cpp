#include "support/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <system_error>

#include "support/error.h"

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace lily {
namespace {

constexpr int kItemBits = 20;
constexpr std::uint32_t kItemMask = (1U << kItemBits) - 1;
constexpr std::int64_t kMaxItems = kItemMask;
constexpr std::uint32_t kEpochMask = (1U << (64 - 2 * kItemBits)) - 1;

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

std::uint64_t ThreadPool::pack(Share share) {
  return std::uint64_t{share.epoch} << (2 * kItemBits) | std::uint64_t{share.begin} << kItemBits | share.end;
}

ThreadPool::Share ThreadPool::unpack(std::uint64_t packed) {
  return {static_cast<std::uint32_t>(packed >> (2 * kItemBits)),
          static_cast<std::uint32_t>(packed >> kItemBits) & kItemMask, static_cast<std::uint32_t>(packed) & kItemMask};
}

ThreadPool::ThreadPool(int threads) : shares_(static_cast<std::size_t>(std::max(threads, 1))) {
  LILY_CHECK(threads >= 1);
  workers_.reserve(static_cast<std::size_t>(threads - 1));
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
  } catch (const std::system_error& error) {
    const std::size_t started = workers_.size() + 1;
    end_workers();  // there will be no destructor
    throw Error(
        fmt::format("only {} of {} threads could be started: {}", started, threads, error.what()),
        "use fewer (--threads), or raise the limits of memory and threads (ulimit -v, ulimit -u, the container's)");
  }
}

ThreadPool::~ThreadPool() {
  end_workers();
}

void ThreadPool::end_workers() {
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
  job_ = job;
  unfinished_.store(static_cast<std::uint32_t>(items), std::memory_order_relaxed);
  const std::uint32_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
  const auto part = [&](int thread) { return static_cast<std::uint32_t>(items * thread / size()); };
  for (int i = 0; i < size(); ++i) {
    shares_[static_cast<std::size_t>(i)].packed.store(pack({epoch, part(i), part(i + 1)}), std::memory_order_release);
  }
  epoch_.store(epoch);  // sequentially consistent, as is the load of parked_: see wait_for_work
  if (parked_.load() > 0) {
    { const std::lock_guard lock(mutex_); }
    wake_.notify_all();
  }
  take_items(0, epoch);
  finish_wait(epoch);
}

void ThreadPool::take_items(int thread, std::uint32_t epoch) {
  do {
    while (take_own(thread)) {
    }
  } while (take_from_others(thread, epoch));
}

// Runs the first item of the thread's share; false when it is empty.
bool ThreadPool::take_own(int thread) {
  std::atomic<std::uint64_t>& own = shares_[static_cast<std::size_t>(thread)].packed;
  std::uint64_t packed = own.load(std::memory_order_acquire);
  Share share;
  do {
    share = unpack(packed);
    if (share.begin == share.end) return false;
  } while (!own.compare_exchange_weak(packed, pack({share.epoch, share.begin + 1, share.end}),
                                      std::memory_order_acq_rel, std::memory_order_acquire));
  const Job job = job_;
  job.call(job.context, share.begin, thread);
  unfinished_.fetch_sub(1, std::memory_order_release);
  return true;
}

// Moves the second half of another's share to the thread's own. That is empty, so no other thread writes to it; nor
// does run_job: the job that the thread has seen begin cannot end before the items just taken. False when nobody has
// any.
bool ThreadPool::take_from_others(int thread, std::uint32_t epoch) {
  for (int i = 1; i < size(); ++i) {
    std::atomic<std::uint64_t>& other = shares_[static_cast<std::size_t>((thread + i) % size())].packed;
    std::uint64_t packed = other.load(std::memory_order_acquire);
    for (Share share = unpack(packed); share.begin != share.end && share.epoch == (epoch & kEpochMask);
         share = unpack(packed)) {
      const std::uint32_t middle = share.begin + (share.end - share.begin) / 2;
      if (!other.compare_exchange_weak(packed, pack({share.epoch, share.begin, middle}), std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
        continue;
      }
      shares_[static_cast<std::size_t>(thread)].packed.store(pack({share.epoch, middle, share.end}),
                                                             std::memory_order_release);
      return true;
    }
  }
  return false;
}

// The caller has no items left; others may still be in theirs. Once it is clear that a thread was put aside, take over
// what it has not begun, and give it the core for what it has.
void ThreadPool::finish_wait(std::uint32_t epoch) {
  const auto done = [this] { return unfinished_.load(std::memory_order_acquire) == 0; };
  while (!spin(done)) {
    take_items(0, epoch);
    if (!done()) std::this_thread::yield();
  }
}

// True when there is a job newer than `seen_epoch`, false to stop.
bool ThreadPool::wait_for_work(std::uint32_t seen_epoch) {
  const auto ready = [&] { return epoch_.load() != seen_epoch || stop_.load(); };
  if (!spin(ready)) {
    std::unique_lock lock(mutex_);
    // Either run_job sees parked_ > 0 after its store of the epoch, or ready() sees that store.
    parked_.fetch_add(1);
    wake_.wait(lock, ready);
    parked_.fetch_sub(1);
  }
  return !stop_.load();
}

void ThreadPool::work(int thread) {
  std::uint32_t seen_epoch = 0;
  while (wait_for_work(seen_epoch)) {
    seen_epoch = epoch_.load();
    take_items(thread, seen_epoch);
  }
}

}  // namespace lily
