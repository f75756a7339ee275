// What each optimisation of the GPU backend is worth: the engine against itself with one switch turned off (GpuOptions,
// Device::set_overlap, the size of chunks), on the same device and weights, in alternating rounds.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "model/model.h"
#include "ops/gpu/gpu_ops.h"

namespace lily {

struct Ablation {
  enum class Phase { kPrefill, kDecode };
  Phase phase;
  std::vector<std::int64_t> lengths;  // where it is measured: tokens of the prompt, or in the cache
  const char* name;
  const char* instead;  // what runs without it
  const char*
      published;  // its effect in the published evaluation of another engine on an M5 Max, "" where there is none
  std::function<void(GpuOptions&)> turn_off;
  /// Of both engines, where the usual choice would hide the switch.
  std::function<void(GpuOptions&)> both = {};
  bool overlap = true;         // of launches, without it
  std::int64_t chunk = 0;      // prompt tokens in one forward pass, with it; 0: the backend's choice
  std::int64_t chunk_off = 0;  // without it; 0: the same
  bool tensor_cores = false;   // only where the backend has kernels for them
};

constexpr std::int64_t kWholePrompt = std::int64_t{1} << 40;  // a chunk that holds any prompt

std::vector<Ablation> gpu_ablations();

struct AblationPlan {
  std::vector<std::int64_t> lengths;  // instead of each ablation's own; empty: those
  std::int64_t tokens = 32;           // of a reply
  int rounds = 5;                     // after one that warms up
};

/// Tokens per second, medians of the rounds.
struct AblationResult {
  const Ablation& ablation;
  std::int64_t length;
  double with, without;
};

/// `model` was loaded to `device` by any Ops. Calls `show` after each measurement.
void run_gpu_ablations(Device& device, const Model& model, const AblationPlan& plan,
                       const std::function<void(const AblationResult&)>& show);

/// The table that `show` fills: its heading, and the line of one result.
std::string ablation_heading();
std::string ablation_line(const AblationResult& result);

}  // namespace lily
