// What ThreadSanitizer sees in the emulator: `races right N` runs clean for seed N, in each other case it reports a
// race.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "device/emulated/emulated_device.h"
#include "device/emulated/emulator.h"
#include "device/test_kernels.h"

using namespace lily;

namespace {

constexpr std::size_t kCount = 128;

class Races {
 public:
  explicit Races(std::uint64_t seed) : emulator_(seed), device_(make_emulated_device({.seed = seed})) {}

  /// Chains of launches through a Device: its barriers are where the ranges need them.
  void right() {
    const auto x = filled(1), y = filled(0), z = filled(0);
    for (int i = 0; i < 2; ++i) {
      scale_add(*x, *y);
      scale_add(*y, *z);
      device_->dispatch(kernels::weigh_64, {.groups = {2}}, x->view<float>(), z->view<float>(), y->view<float>());
      device_->submit();
    }
    device_->wait();
    if (y->host_as<float>()[5] != z->host_as<float>()[5]) std::abort();
    y->host_as<float>()[5] = 1;
  }
  void no_barrier_in_kernel() { run(kernels::broken_missing_barrier, {out_.data()}, {1, 1, 1}); }
  void groups_share() { run(kernels::broken_groups_share, {out_.data()}, {4, 1, 1}); }
  void no_barrier_between() {
    Scaling scaling{1, kCount};
    run(kernels::scale_add_64, {in_.data(), out_.data(), &scaling}, {2, 1, 1});
    run(kernels::scale_add_64, {out_.data(), in_.data(), &scaling}, {2, 1, 1});
  }
  void reads_too_early() {
    Scaling scaling{1, kCount};
    run(kernels::scale_add_64, {in_.data(), out_.data(), &scaling}, {2, 1, 1});
    emulator_.fence();
    run(kernels::broken_reads_too_early, {out_.data(), in_.data()}, {1, 1, 1});
  }
  void host_reads_too_early() {
    run(kernels::broken_missing_barrier, {out_.data()}, {1, 1, 1});
    if (std::ranges::count(out_, 1e30F) > 0) std::abort();  // without device_to_host()
  }

 private:
  std::unique_ptr<Buffer> filled(float value) {
    auto buffer = device_->allocate(kCount * sizeof(float), Memory::kShared);
    std::ranges::fill(buffer->host_as<float>(), value);
    return buffer;
  }
  void scale_add(const Buffer& x, const Buffer& y) {
    device_->dispatch(kernels::scale_add_64, {.groups = {2}}, x.view<float>(), y.view<float>(), Scaling{1, kCount});
  }
  void run(const Entry& entry, std::vector<void*> arguments, emulated::Position groups) {
    emulator_.host_to_device();
    emulator_.run(entry, arguments.data(), groups);
  }

  emulated::Emulator emulator_;
  std::unique_ptr<Device> device_;
  std::vector<float> in_ = std::vector<float>(kCount, 1.F), out_ = std::vector<float>(kCount, 1.F);
};

}  // namespace

int main(int, char** arguments) {
  Races races(std::strtoull(arguments[2], nullptr, 10));
  const std::string name = arguments[1];
  if (name == "right") races.right();
  if (name == "no_barrier_in_kernel") races.no_barrier_in_kernel();
  if (name == "groups_share") races.groups_share();
  if (name == "no_barrier_between") races.no_barrier_between();
  if (name == "reads_too_early") races.reads_too_early();
  if (name == "host_reads_too_early") races.host_reads_too_early();
  return 0;
}
