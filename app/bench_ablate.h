// lily bench --ablate: what each optimisation is worth. Two engines that differ in one switch are loaded, and their
// rounds alternate.
#pragma once

#include <cstdint>

#include "engine/loaded_model.h"

namespace lily {

struct AblationPlan {
  LoadOptions load;
  std::vector<std::int64_t> lengths;
  std::int64_t tokens = 64;
  int rounds = 3;
};

/// Prints one line for each switch of the device and each length: by how much the engine is faster with it.
void ablate(const AblationPlan& plan);

}  // namespace lily
