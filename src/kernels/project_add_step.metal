// x += in W^T for one row, 4-bit W: the output projections in decode, that of the delta rule with its gated norm.
#include "project_add_step.h"

using AddTile = LaneTile<4, false>;
using RaggedAddTile = LaneTile<4, true>;

ENTRY_PREFETCH(project_add_step_q4_4096, 512, project_add_step<AddTile, 4096, 16, 0>)
ENTRY_PREFETCH(project_add_step_q4, 128, project_add_step<RaggedAddTile, 0, 4, 0>)
ENTRY_PREFETCH(gated_project_add_step_q4_4096, 512, project_add_step<AddTile, 4096, 16, 128>)
ENTRY_PREFETCH(gated_project_add_step_q4_128, 128, project_add_step<RaggedAddTile, 0, 4, 128>)
ENTRY_PREFETCH(gated_project_add_step_q4_64, 128, project_add_step<RaggedAddTile, 0, 4, 64>)
