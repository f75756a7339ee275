// The chosen experts' gate and up projections with their activation, in decode.
#include "experts_up_step.h"

using ExpertsUpTile = LaneTile<4, false>;
using RaggedExpertsUpTile = LaneTile<4, true>;

ENTRY_PREFETCH(experts_up_step_q4_2048, 512, experts_up_step<ExpertsUpTile, 2048, 16>)
ENTRY_PREFETCH(experts_up_step_q4, 128, experts_up_step<RaggedExpertsUpTile, 0, 4>)
