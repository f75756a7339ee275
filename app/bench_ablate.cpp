#include "bench_ablate.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>

#include "benchmark/speed.h"
#include "ops/cpu/cpu_ops.h"
#include "progress_line.h"

namespace lily {
namespace {

struct Ablation {
  const char* name;       // the optimisation
  const char* without;    // what runs instead
  const char* published;  // its effect on an M5 Max where one was published, on prefill
  std::function<void(LoadOptions&)> turn_off;
  std::int64_t chunk = 0;  // prompt tokens in one forward pass without it; 0: no other than with it
};

std::vector<Ablation> gpu_ablations() {
  using TensorCores = GpuOptions::TensorCores;
  return {
      {"routing on the GPU", "the host sorts rows by expert", "+89% at 512",
       [](LoadOptions& load) { load.gpu.routing_on_device = false; }},
      {"barriers where needed", "a barrier between all launches", "",
       [](LoadOptions& load) { load.overlap_launches = false; }},
      {"large prefill chunks", "512 tokens", "", [](LoadOptions&) {}, 512},
      {"expert tiles by load", "32 rows always", "", [](LoadOptions& load) { load.gpu.tiles_by_load = false; }},
      {"delta rule by chunks", "token by token", "", [](LoadOptions& load) { load.gpu.chunked_delta = false; }},
      {"matrix units by mma.sync", "portable tiles", "",
       [](LoadOptions& load) { load.gpu.tensor_cores = TensorCores::kNever; }},
      {"tokens drawn on the GPU", "the host draws", "", [](LoadOptions& load) { load.gpu.tokens_on_device = false; }},
      {"recorded steps", "launches made anew for each token", "",
       [](LoadOptions& load) { load.gpu.recorded_steps = false; }},
      {"split KV cache", "one threadgroup for each KV head", "",
       [](LoadOptions& load) { load.gpu.attention_groups = 1; }},
  };
}

std::vector<Ablation> cpu_ablations() {
  std::vector<Ablation> all = {
      {"16-bit activations", "float32", "", [](LoadOptions& load) { load.activations = "float32"; }},
      {"threads", "one", "", [](LoadOptions& load) { load.threads = 1; }},
  };
  for (const std::string& target : cpu_targets()) {
    if (target == cpu_targets().front()) continue;
    all.push_back({"instruction set", "", "", [target](LoadOptions& load) { load.target = target; }});
  }
  return all;
}

/// "the host sorts rows by expert", or the instruction set that the ablation leaves.
std::string without(const Ablation& ablation, const LoadOptions& load) {
  return *ablation.without != '\0' ? ablation.without : load.target;
}

struct Effect {
  double prefill, decode;  // speed with the optimisation / speed without
};

Effect measure(LoadedModel& with, LoadedModel& less, std::int64_t length, std::int64_t chunk,
               const AblationPlan& plan) {
  SamplingParams greedy;
  greedy.temperature = 0;
  SpeedPlan speed_plan{.length = length, .tokens = plan.tokens, .sampling = greedy, .chunk = 0};
  SpeedTest first(with, speed_plan);
  speed_plan.chunk = chunk;
  SpeedTest second(less, speed_plan);
  std::vector<double> prefill, decode;
  for (int round = 0; round <= plan.rounds; ++round) {
    const Speed a = first.round(), b = second.round();
    if (round == 0) continue;  // warms up
    prefill.push_back(b.prefill_seconds / a.prefill_seconds);
    decode.push_back(b.decode_seconds / a.decode_seconds);
  }
  return {spread_of(prefill).median, spread_of(decode).median};
}

std::string percent(double ratio) {
  return fmt::format("{:+.1f}%", 100 * (ratio - 1));
}

}  // namespace

void ablate(const AblationPlan& plan) {
  LoadedModel whole(plan.load);
  fmt::print(
      "{} on {}: how much faster with each optimisation, medians of {} alternating rounds, {} tokens of reply\n\n",
      plan.load.model, whole.device(), plan.rounds, plan.tokens);
  fmt::print("  {:<26}{:<36}{:>8}{:>12}{:>12}   {}\n", "optimisation", "against", "prompt", "prefill", "decode",
             "published");
  for (const Ablation& ablation : whole.gpu() != nullptr ? gpu_ablations() : cpu_ablations()) {
    LoadOptions load = plan.load;
    ablation.turn_off(load);
    LoadedModel less(load);
    for (const std::int64_t length : plan.lengths) {
      const Effect effect = measure(whole, less, length, ablation.chunk, plan);
      fmt::print("  {:<26}{:<36}{:>8}{:>12}{:>12}   {}\n", ablation.name, without(ablation, load), length,
                 percent(effect.prefill), percent(effect.decode), ablation.published);
      std::fflush(stdout);
    }
  }
}

}  // namespace lily
