// The decode kernels with the tensor cores' own instruction in the place of LaneTile: the same sums, a third of the
// instructions, and weights on their way in threadgroup memory before the inputs are there. For CUDA (and the emulator)
// only; the sizes are the real model's.
#undef STEP_SHARED
#define STEP_SHARED LARGE_SHARED

#include "../experts_down_step.h"
#include "../experts_parts_step.h"
#include "../experts_up_step.h"
#include "../project_add_step.h"
#include "../project_step.h"
#include "../route_step.h"

using WideTile = MmaTile<4, 3>;
using ThinTile = MmaTile<4, 1>;
using ExpertsTile = MmaTile<4, 2>;
using RouterTile = MmaTile<8, 1>;
using ProjectMma = ProjectStepMemory<WideTile, 8>;
using ProjectAddMma = ProjectAddMemory<ThinTile, 16>;
using RouteMma = RouteMemory<RouterTile::Stage, 16, 16>;
using ExpertsUpMma = ExpertsUpMemory<ExpertsTile, 16>;
// 18 simdgroups have work. A multiprocessor gives registers to 20 either way, and bound to 640 threads the kernel keeps
// to 48 a thread instead of 56: only then does a threadgroup fit beside one of the experts' up, and ask for its weights
// while that still runs (667 -> 692 tok/s on an H200).
using ExpertsDownMma = ExpertsDownMemory<ThinTile, 20>;
using ExpertsMatrixMma = ExpertsUpMemory<ExpertsTile, 8>;
using ExpertsSlotMma = ExpertsDownMemory<ThinTile, 2>;

// A launch that starts beside the one before it is put where there is room, two threadgroups on one multiprocessor and
// none on the next. Of those that take more than half of its memory (228 KiB, 1 of them for each threadgroup) one fits,
// of those that take more than a third two.
template <class Memory, int KIB>
struct Spread {
  Memory memory;
  uchar room[KIB * 1024 - sizeof(Memory)];
};
using ProjectSpread = Spread<ProjectMma, 77>;
using ProjectAddSpread = Spread<ProjectAddMma, 114>;
using ExpertsUpSpread = Spread<ExpertsUpMma, 114>;

ENTRY_PREFETCH_LARGE(project_step_q4_2048_mma, 256, 4, ProjectSpread, project_step<WideTile, 2048, 8>)
ENTRY_PREFETCH_LARGE(head_step_q4_2048_mma, 256, 4, ProjectMma, project_step<WideTile, 2048, 8>)
ENTRY_PREFETCH_LARGE(project_add_step_q4_4096_mma, 512, 2, ProjectAddSpread, project_add_step<ThinTile, 4096, 16, 0>)
ENTRY_PREFETCH_LARGE(gated_project_add_step_q4_4096_mma, 512, 2, ProjectAddSpread,
                     project_add_step<ThinTile, 4096, 16, 128>)
ENTRY_PREFETCH_LARGE(route_step_2048_mma, 512, 2, RouteMma, route_step<RouterTile, ThinTile, 2048, 16>)
ENTRY_PREFETCH_LARGE(experts_up_step_q4_2048_mma, 512, 2, ExpertsUpSpread, experts_up_step<ExpertsTile, 2048, 16>)
ENTRY_LARGE(experts_matrix_step_q4_2048_mma, 256, 4, ExpertsMatrixMma, experts_matrix_step<ExpertsTile, 2048, 8>)
ENTRY_LARGE(experts_slot_step_q4_512_mma, 64, 8, ExpertsSlotMma, experts_slot_step<ThinTile, 512, 2>)
ENTRY_PREFETCH_LARGE(experts_down_step_q4_512_mma, 640, 2, ExpertsDownMma, experts_down_step<ThinTile, 512, 20>)
