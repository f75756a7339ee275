// All kernel files as C++ declarations: `kernels::<entry>` for Device::dispatch, and the argument structs they share
// with the host. For files that launch kernels (src/ops/gpu_*, their tests), and no others: MSL's types become global
// names.
#pragma once

#include "kernels/zero.metal"

// Last: MSL's words are macros until here.
#include "kernels/shim/host/undefine_msl.h"
