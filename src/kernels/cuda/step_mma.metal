// The decode kernels with the tensor cores' own instruction in the place of LaneTile: the same sums, a third of the
// instructions. For CUDA (and the emulator) only; the sizes are the real model's.
#include "../experts_down_step.h"
#include "../experts_up_step.h"
#include "../project_add_step.h"
#include "../project_step.h"
#include "../route_step.h"

ENTRY_PREFETCH(project_step_q4_2048_mma, 256, project_step<MmaTile<4>, 2048, 8>)
ENTRY_PREFETCH(project_add_step_q4_4096_mma, 512, project_add_step<MmaTile<4>, 4096, 16, 0>)
ENTRY_PREFETCH(gated_project_add_step_q4_4096_mma, 512, project_add_step<MmaTile<4>, 4096, 16, 128>)
ENTRY_PREFETCH(route_step_2048_mma, 512, route_step<MmaTile<8>, MmaTile<4>, 2048, 16>)
ENTRY_PREFETCH(experts_up_step_q4_2048_mma, 512, experts_up_step<MmaTile<4>, 2048, 16>)
ENTRY_PREFETCH(experts_down_step_q4_512_mma, 576, experts_down_step<MmaTile<4>, 512, 18>)
