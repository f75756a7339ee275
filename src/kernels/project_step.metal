// out = rms_norm(x, norm) W^T for one row, 4-bit W: the input projections and the head in decode.
#include "project_step.h"

using LaneTile4 = LaneTile<4, false>;
using RaggedTile4 = LaneTile<4, true>;

ENTRY_PREFETCH(project_step_q4_2048, 256, project_step<LaneTile4, 2048, 8>)
ENTRY_PREFETCH(project_step_q4, 128, project_step<RaggedTile4, 0, 4>)
