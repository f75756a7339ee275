// The chosen experts' and the shared expert's down projections, weighted and added to the residual, in decode.
#include "experts_down_step.h"

using ExpertsDownTile = LaneTile<4, false>;
using RaggedExpertsDownTile = LaneTile<4, true>;

ENTRY_PREFETCH(experts_down_step_q4_512, 576, experts_down_step<ExpertsDownTile, 512, 18>)
ENTRY_PREFETCH(experts_down_step_q4, 256, experts_down_step<RaggedExpertsDownTile, 0, 8>)
