// Each kernels_*.cpp puts its functions, compiled for Highway's currently chosen target, into the table.
#pragma once

#include "ops/cpu/kernels.h"

namespace lily::cpu {

void fill_row_kernels(Kernels& kernels);
void fill_linear_kernels(Kernels& kernels);
void fill_record_kernels(Kernels& kernels);
void fill_integer_row_kernels(Kernels& kernels);
void fill_integer_tile_kernels(Kernels& kernels);
void fill_delta_kernels(Kernels& kernels);
void fill_attention_kernels(Kernels& kernels);
void fill_rate_kernels(Kernels& kernels);

}  // namespace lily::cpu
