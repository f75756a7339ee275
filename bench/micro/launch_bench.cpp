// What a launch costs: a chain of small dependent launches, as a step (a graph on CUDA) and one by one. The time of an
// iteration over the number of launches is the least that a stage of a decoded token can take.
//
//   launch_bench            on the first GPU
#include <benchmark/benchmark.h>

#include "device/device.h"
#include "kernels/kernels.h"

namespace {

constexpr unsigned kWords = 1024;

/// `launches` launches of 4 threadgroups, each of which needs the one before.
class Chain {
 public:
  explicit Chain(std::int64_t launches) : device_(lily::make_device(lily::DeviceKind::kAuto)), launches_(launches) {
    if (device_ != nullptr) memory_ = device_->allocate(kWords * sizeof(unsigned));
  }
  bool there() const { return device_ != nullptr; }
  lily::Device& device() { return *device_; }
  void dispatch() {
    for (std::int64_t i = 0; i < launches_; ++i) {
      device_->dispatch(lily::kernels::zero_words, {.groups = {4}}, memory_->view<unsigned>(), kWords);
    }
  }

 private:
  std::unique_ptr<lily::Device> device_;
  std::int64_t launches_;
  std::unique_ptr<lily::Buffer> memory_;
};

void step(benchmark::State& state) {
  Chain chain(state.range(0));
  if (!chain.there()) return state.SkipWithError("no GPU");
  chain.dispatch();
  const auto recorded = chain.device().record();
  for (auto _ : state) chain.device().wait(chain.device().submit(*recorded));
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void step_two_in_flight(benchmark::State& state) {
  Chain chain(state.range(0));
  if (!chain.there()) return state.SkipWithError("no GPU");
  chain.dispatch();
  const auto recorded = chain.device().record();
  for (auto _ : state) chain.device().submit(*recorded);
  chain.device().wait();
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

void one_by_one(benchmark::State& state) {
  Chain chain(state.range(0));
  if (!chain.there()) return state.SkipWithError("no GPU");
  for (auto _ : state) {
    chain.dispatch();
    chain.device().wait(chain.device().submit());
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}

BENCHMARK(step)->Arg(1)->Arg(256)->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(step_two_in_flight)->Arg(256)->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(one_by_one)->Arg(256)->UseRealTime()->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
