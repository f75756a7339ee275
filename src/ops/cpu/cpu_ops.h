// The CPU backend: implements Ops directly. Weights are read where the checkpoint maps them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "ops/ops.h"
#include "ops/profile.h"

namespace lily {

/// How activations enter products with 4-bit weights. Everything else is computed in float32 in all modes.
enum class Activations {
  kFloat32,  // as they are; the KV cache is float32 too, otherwise float16
  kInt16,    // 16 bits against the largest of each 64: as good as float32, at most twice the work of kInt8
  kInt8,     // 8 bits against the largest of each 64
};

/// "float32", "int16", "int8"; "" is the default. Throws Error for anything else.
Activations activations_named(std::string_view name);

struct CpuOptions {
  /// 0: as many as the process may use (affinity, cgroup quota, physical cores).
  int threads = 0;
  /// "": the best that this CPU has. Otherwise one of cpu_targets(), for tests and comparisons.
  std::string target;
  Activations activations = activations_named("");
  /// Filled by every op; must outlive the Ops.
  Profile* profile = nullptr;
};

/// Instruction sets of this build that this CPU can run, best first; the last one is "portable".
std::vector<std::string> cpu_targets();

/// What decides the bits of results, e.g. "int8-avx512vnni": states computed with another arithmetic go on nearly, not
/// exactly, the same. For the options of a backend that was made.
std::string cpu_arithmetic(const CpuOptions& options);

/// Rows of one forward pass of a prompt; throws Error for an unknown target.
std::int64_t cpu_prefill_chunk(const CpuOptions& options);

/// Throws Error for an unknown target. The Ops serves models of exactly these sizes.
std::unique_ptr<Ops> make_cpu_ops(const ModelConfig& config, const CpuOptions& options = {});

}  // namespace lily
