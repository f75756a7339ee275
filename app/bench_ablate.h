// lily bench --ablate: what each optimisation is worth. On a GPU one model is loaded and two engines that differ in one
// switch take turns on it (benchmark/ablation.h); on the CPU two models are loaded.
#pragma once

#include <cstdint>

#include "engine/loaded_model.h"

namespace lily {

struct AblateOptions {
  LoadOptions load;
  std::vector<std::int64_t> lengths;
  bool own_lengths = true;  // on a GPU: each optimisation where it matters, instead of `lengths`
  std::int64_t tokens = 64;
  int rounds = 3;
};

/// Prints one line for each switch of the device and each length: by how much the engine is faster with it.
void ablate(const AblateOptions& plan);

}  // namespace lily
