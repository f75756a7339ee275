#include "bench_ablate.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>

#include "benchmark/ablation.h"
#include "benchmark/speed.h"
#include "ops/cpu/cpu_ops.h"
#include "progress_line.h"

namespace lily {
namespace {

struct CpuAblation {
  const char* name;     // the optimisation
  const char* without;  // what runs instead
  std::function<void(LoadOptions&)> turn_off;
};

/// Of a whole model with these activations.
std::vector<CpuAblation> cpu_ablations(Activations activations) {
  std::vector<CpuAblation> all;
  const auto exact = [](LoadOptions& load) { load.activations = "float32"; };
  if (activations == Activations::kInt8) {
    all.push_back({"8-bit activations", "16 bits", [](LoadOptions& load) { load.activations = "int16"; }});
    all.push_back({"8-bit activations", "float32", exact});
  } else if (activations == Activations::kInt16) {
    all.push_back({"16-bit activations", "float32", exact});
  }
  all.push_back({"threads", "one", [](LoadOptions& load) { load.threads = 1; }});
  for (const std::string& target : cpu_targets()) {
    if (target == cpu_targets().front()) continue;
    all.push_back({"instruction set", "", [target](LoadOptions& load) { load.target = target; }});
  }
  return all;
}

/// "the host sorts rows by expert", or the instruction set that the ablation leaves.
std::string without(const CpuAblation& ablation, const LoadOptions& load) {
  return *ablation.without != '\0' ? ablation.without : load.target;
}

struct Effect {
  double prefill, decode;  // speed with the optimisation / speed without
};

Effect measure(LoadedModel& with, LoadedModel& less, std::int64_t length, const AblateOptions& plan) {
  SamplingParams greedy;
  greedy.temperature = 0;
  const SpeedPlan speed_plan{.length = length, .tokens = plan.tokens, .sampling = greedy, .chunk = 0};
  SpeedTest first(with, speed_plan), second(less, speed_plan);
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

void ablate_cpu(LoadedModel& whole, const AblateOptions& plan) {
  fmt::print("  {:<26}{:<20}{:>8}{:>12}{:>12}\n", "optimisation", "against", "prompt", "prefill", "decode");
  for (const CpuAblation& ablation : cpu_ablations(activations_named(plan.load.activations))) {
    LoadOptions load = plan.load;
    ablation.turn_off(load);
    LoadedModel less(load);
    for (const std::int64_t length : plan.lengths) {
      const Effect effect = measure(whole, less, length, plan);
      fmt::print("  {:<26}{:<20}{:>8}{:>12}{:>12}\n", ablation.name, without(ablation, load), length,
                 percent(effect.prefill), percent(effect.decode));
      std::fflush(stdout);
    }
  }
}

}  // namespace

void ablate(const AblateOptions& plan) {
  LoadedModel whole(plan.load);
  fmt::print("{} on {}: what each optimisation brings, medians of {} alternating rounds, {} tokens of reply\n\n",
             plan.load.model, whole.device(), plan.rounds, plan.tokens);
  if (whole.gpu() == nullptr) return ablate_cpu(whole, plan);
  const AblationPlan gpu{.lengths = plan.own_lengths ? std::vector<std::int64_t>{} : plan.lengths,
                         .tokens = plan.tokens,
                         .rounds = plan.rounds};
  fmt::print("{}", ablation_heading());
  run_gpu_ablations(*whole.gpu(), whole.model(), gpu, [](const AblationResult& result) {
    fmt::print("{}", ablation_line(result));
    std::fflush(stdout);
  });
}

}  // namespace lily
