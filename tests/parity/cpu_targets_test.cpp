// The demo model with each set of instructions that this CPU has, forced as by --cpu-target, against MLX-LM's logits
// and what docs/parity.md states; float32 is MLX's own arithmetic. What the default computes with is in
// parity_test.cpp.
#include <gtest/gtest.h>

#include <iostream>
#include <string>

#include "checkpoint/checkpoint.h"
#include "eval/evaluation.h"
#include "ops/cpu/cpu_ops.h"

namespace lily {
namespace {

#ifdef LILY_EMULATED
constexpr std::int64_t kPositions = 50;
constexpr double kNoise = 2.0;  // in the perplexity, of a quarter of the positions
#else
constexpr std::int64_t kPositions = 200;
constexpr double kNoise = 1.0;
#endif

struct Bounds {
  std::string activations;
  double top1;
  double perplexity;  // its ratio's distance from 1
  double logits;      // the largest error
};

TEST(CpuTargets, AreAllWithinTheStatedBounds) {
  const std::string models = std::string(LILY_SOURCE_DIR) + "/models/";
  const Checkpoint checkpoint = Checkpoint::open(models + "demo");
  const Goldens goldens = read_goldens(models + "demo-goldens/goldens.safetensors", checkpoint.config());
  for (const std::string& target : cpu_targets()) {
    for (const Bounds& bounds :
         {Bounds{"float32", 1.0, 1e-5, 1e-3}, Bounds{"int16", 0.98, 4e-4, 1.0}, Bounds{"int8", 0.9635, 1e-3, 5.0}}) {
      const auto ops =
          make_cpu_ops(checkpoint.config(), {.target = target, .activations = activations_named(bounds.activations)});
      const Model model = load_model(checkpoint, *ops);
      const RunScore score = score_goldens(model, *ops, goldens, kPositions).lily;
      const std::string what = target + " " + bounds.activations;
      std::cout << what << ": top-1 " << score.top1_agreement() * 100 << "%, perplexity x " << score.perplexity_ratio()
                << ", largest error " << score.max_logit_error << "\n";
      EXPECT_EQ(score.positions, kPositions);
      EXPECT_GE(score.top1_agreement(), bounds.top1) << what;
      EXPECT_NEAR(score.perplexity_ratio(), 1.0, kNoise * bounds.perplexity) << what;
      EXPECT_LT(score.max_logit_error, bounds.logits) << what;
    }
  }
}

}  // namespace
}  // namespace lily
