#include "benchmark/machine.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <vector>

#include "kernels/kernels.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/memory.h"
#include "support/thread_pool.h"

namespace lily {
namespace {

constexpr int kPasses = 5;

}  // namespace

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double measured_read_bandwidth(int threads, ClockSeconds now) {
  constexpr std::int64_t kWords = std::int64_t{64} << 20;  // 512 MiB
  constexpr std::int64_t kChunk = std::int64_t{1} << 17;
  ThreadPool pool(threads > 0 ? threads : usable_cores());
  const cpu::Pages pages(kWords * sizeof(std::uint64_t));
  auto* words = pages.as<std::uint64_t>();
  std::fill_n(words, kWords, 1);
  std::vector<std::uint64_t> sums(kWords / kChunk);
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const double start = now();
    pool.run(kWords / kChunk, [&](std::int64_t item, int) noexcept {
      const auto* first = words + item * kChunk;
      sums[static_cast<std::size_t>(item)] = std::accumulate(first, first + kChunk, std::uint64_t{0});
    });
    const double seconds = now() - start;
    LILY_CHECK(std::accumulate(sums.begin(), sums.end(), std::uint64_t{0}) == kWords);  // it was really read
    best = std::max(best, static_cast<double>(kWords * sizeof(std::uint64_t)) / seconds);
  }
  return best;
}

double measured_copy_bandwidth(Device& device) {
  const bool emulated = device.info().kind == DeviceKind::kEmulated;
  const std::size_t bytes = std::size_t{emulated ? 1U : 512U} << 20;
  const auto from = device.allocate(bytes), to = device.allocate(bytes);
  const auto words = static_cast<unsigned>(bytes / sizeof(unsigned));
  device.dispatch(kernels::zero_words, {.groups = {1024}}, from->view<unsigned>(), words);
  device.wait(device.submit());
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const double start = wall_seconds();
    device.dispatch(kernels::copy_words, {.groups = {4096}}, from->view<unsigned>(), to->view<unsigned>(), words);
    device.wait(device.submit());
    best = std::max(best, 2.0 * static_cast<double>(bytes) / (wall_seconds() - start));
  }
  return best;
}

std::optional<double> measured_dot_rate(int threads, ClockSeconds now) {
  constexpr std::int64_t kPassesOfLoop = 2'000'000;
  const cpu::Kernels* kernels = cpu::find_kernels("");
  if (kernels == nullptr || kernels->dot_loop == nullptr) return {};
  const int count = threads > 0 ? threads : usable_cores();
  ThreadPool pool(count);
  std::vector<double> done(static_cast<std::size_t>(count));
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const double start = now();
    pool.run(count, [&](std::int64_t item, int) noexcept {
      done[static_cast<std::size_t>(item)] = kernels->dot_loop(kPassesOfLoop);
    });
    best = std::max(best, std::accumulate(done.begin(), done.end(), 0.0) / (now() - start));
  }
  return best;
}

double measured_matrix_rate(Device& device) {
  const bool emulated = device.info().kind == DeviceKind::kEmulated, cuda = device.info().kind == DeviceKind::kCuda;
  constexpr double kOperations = 65536;  // of a simdgroup's pass, in both kernels
  const unsigned groups = emulated ? 1 : 4096, passes = emulated ? 1 : cuda ? 4096 : 256, threads = cuda ? 256 : 128;
  const auto out = device.allocate(std::size_t{groups} * threads * sizeof(float));
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const double start = wall_seconds();
    if (cuda) {
      device.dispatch(kernels::matrix_rate_mma_256, {.groups = {groups}}, out->view<float>(), passes);
    } else {
      device.dispatch(kernels::matrix_rate_128, {.groups = {groups}}, out->view<float>(), passes);
    }
    device.wait(device.submit());
    best = std::max(best, kOperations * groups * (threads / 32) * passes / (wall_seconds() - start));
  }
  return best;
}

}  // namespace lily
