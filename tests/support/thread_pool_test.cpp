#include "support/thread_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "support/error.h"

namespace lily {
namespace {

TEST(ThreadPool, RunsEveryItemOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.size(), threads);
    for (const std::int64_t items : {0, 1, 2, 3, 100, 10000}) {
      std::vector<int> counts(static_cast<std::size_t>(items));
      std::atomic<bool> bad_thread{false};
      pool.run(items, [&](std::int64_t item, int thread) noexcept {
        ++counts[static_cast<std::size_t>(item)];
        if (thread < 0 || thread >= threads) bad_thread = true;
      });
      EXPECT_TRUE(std::all_of(counts.begin(), counts.end(), [](int count) { return count == 1; }));
      EXPECT_FALSE(bad_thread);
    }
  }
}

// Plain memory written by one job is seen by the next, whichever threads run them.
TEST(ThreadPool, OneJobSeesWhatTheLastOneWrote) {
  ThreadPool pool(4);
  std::vector<int> values(64);
  for (int job = 0; job < 3000; ++job) {
    pool.run(64, [&](std::int64_t item, int) noexcept {
      const auto i = static_cast<std::size_t>(job % 2 == 0 ? item : 63 - item);
      ++values[i];
    });
  }
  EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](int value) { return value == 3000; }));
}

TEST(ThreadPool, WorkersThatParkedComeBack) {
  ThreadPool pool(3);
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::atomic<int> done{0};
    pool.run(17, [&](std::int64_t, int) noexcept { ++done; });
    EXPECT_EQ(done, 17);
  }
}

// Each thread walks through neighbouring items: what lies side by side in memory is read in long runs.
TEST(ThreadPool, AThreadTakesNeighbours) {
  ThreadPool pool(2);
  std::vector<std::vector<std::int64_t>> taken(2);
  std::atomic<int> begun{0};
  pool.run(64, [&](std::int64_t item, int thread) noexcept {
    auto& mine = taken[static_cast<std::size_t>(thread)];
    if (mine.empty()) {  // neither takes from the other before it has begun
      ++begun;
      while (begun < 2) std::this_thread::yield();
    }
    mine.push_back(item);
  });
  EXPECT_EQ(taken[0].front(), 0);
  EXPECT_EQ(taken[1].front(), 32);
  int jumps = 0;
  for (const auto& items : taken) {
    for (std::size_t i = 1; i < items.size(); ++i) jumps += items[i] != items[i - 1] + 1 ? 1 : 0;
  }
  EXPECT_LE(jumps, 12);  // each theft halves what is left
}

// A thread that is stuck in one item does not keep the others from doing the rest.
TEST(ThreadPool, OneSlowItemHoldsUpNoOther) {
  ThreadPool pool(2);
  std::atomic<int> others{0};
  std::atomic<bool> saw_all{false};
  pool.run(50, [&](std::int64_t item, int) noexcept {
    if (item != 0) {
      ++others;
      return;
    }
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (others < 49 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    saw_all = others == 49;
  });
  EXPECT_TRUE(saw_all);
}

#if defined(__linux__) && !defined(LILY_EMULATED) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Each thread's stack takes megabytes of address space.
TEST(ThreadPoolDeathTest, ThreadsThatCannotBeStartedAreAnError) {
  const auto start_too_many = [] {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t bytes = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + (rlim_t{256} << 20);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = bytes};
    ::setrlimit(RLIMIT_AS, &limit);
    try {
      const ThreadPool pool(5000);
    } catch (const Error& error) {
      std::cerr << error.what() << " (" << error.hint() << ")";
      std::exit(3);
    }
    std::exit(0);
  };
  EXPECT_EXIT(start_too_many(), testing::ExitedWithCode(3),
              "only [0-9]+ of 5000 threads could be started: .*--threads");
}
#endif

}  // namespace
}  // namespace lily
