// `lily bench --ablate` at the full shape with weights made up on the device.
//
//   ablation_bench [cuda|metal|emulated] [rounds]
#include <fmt/format.h>

#include <cstdlib>

#include "benchmark.h"
#include "benchmark/ablation.h"
#include "ops/gpu/synthetic.h"

namespace lily {

int run_benchmark(int argc, char** argv) {
  const auto device = require_gpu("ablation_bench", argc > 1 ? argv[1] : "auto");
  AblationPlan plan;
  if (argc > 2) plan.rounds = std::atoi(argv[2]);
  const ModelConfig config = full_shape();
  const auto ops = make_gpu_ops(*device, config);
  const Model model = make_synthetic_model(*device, *ops, config);
  fmt::print("{}, medians of {} alternating rounds\n{}", device->info().name, plan.rounds, ablation_heading());
  run_gpu_ablations(*device, model, plan, [](const AblationResult& result) {
    fmt::print("{}", ablation_line(result));
    std::fflush(stdout);
  });
  return 0;
}

}  // namespace lily
