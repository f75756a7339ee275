// All kernel files as C++ declarations: `kernels::<entry>` for Device::dispatch, and the argument structs they share
// with the host. For files that launch kernels (src/ops/gpu_*, their tests), and no others: MSL's types become global
// names.
#pragma once

#include "kernels/attention_merge.metal"
#include "kernels/attention_prepare.metal"
#include "kernels/attention_rows.metal"
#include "kernels/attention_step.metal"
#include "kernels/conv_ring.metal"
#include "kernels/conv_rows.metal"
#include "kernels/copy.metal"
#include "kernels/delta_rows.metal"
#include "kernels/embed.metal"
#include "kernels/experts_combine.metal"
#include "kernels/experts_down_rows.metal"
#include "kernels/experts_down_step.metal"
#include "kernels/experts_up_rows.metal"
#include "kernels/experts_up_step.metal"
#include "kernels/gate_rows.metal"
#include "kernels/gated_delta_step.metal"
#include "kernels/gated_norm_rows.metal"
#include "kernels/norm_rows.metal"
#include "kernels/plan_experts.metal"
#include "kernels/project_add_step.metal"
#include "kernels/project_rows.metal"
#include "kernels/project_step.metal"
#include "kernels/random.metal"
#include "kernels/route_rows.metal"
#include "kernels/route_step.metal"
#include "kernels/scatter_experts.metal"
#include "kernels/select_adjust.metal"
#include "kernels/select_token.metal"
#include "kernels/tile_probe.metal"
#include "kernels/zero.metal"
#include "kernels/cuda/step_mma.metal"

// Last: MSL's words are macros until here.
#include "kernels/shim/host/undefine_msl.h"
