// The CPU backend: implements Ops directly. Weights are read where the checkpoint maps them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "ops/ops.h"

namespace lily {

struct CpuOptions {
  /// 0: as many as the process may use (affinity, cgroup quota, physical cores).
  int threads = 0;
  /// "": the best that this CPU has. Otherwise one of cpu_targets(), for tests and comparisons.
  std::string target;
};

/// Instruction sets of this build that this CPU can run, best first; the last one is "portable".
std::vector<std::string> cpu_targets();

/// Throws Error for an unknown target. The Ops serves models of exactly these sizes.
std::unique_ptr<Ops> make_cpu_ops(const ModelConfig& config, const CpuOptions& options = {});

}  // namespace lily
