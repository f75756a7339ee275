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
void fill_amx_kernels(Kernels& kernels);  // besides avx512vnni's

// The integer kernels are compiled once more for sets of instructions that Highway 1.0.3 has no target for.
void fill_integer_row_kernels_avx2vnni(Kernels& kernels);
void fill_integer_tile_kernels_avx2vnni(Kernels& kernels);
void fill_rate_kernels_avx2vnni(Kernels& kernels);
void fill_integer_row_kernels_dotprod(Kernels& kernels);
void fill_integer_tile_kernels_dotprod(Kernels& kernels);
void fill_rate_kernels_dotprod(Kernels& kernels);
void fill_integer_tile_kernels_i8mm(Kernels& kernels);  // for few rows: the dot product's
void fill_rate_kernels_i8mm(Kernels& kernels);
void fill_amx_kernels_emulated(Kernels& kernels);  // in tests
#if defined(LILY_EMULATED_AMX)
#define LILY_FILL(kernels) fill_##kernels##_emulated
#elif defined(LILY_COMPILING_AVX2VNNI)
#define LILY_FILL(kernels) fill_##kernels##_avx2vnni
#elif defined(LILY_COMPILING_DOTPROD)
#define LILY_FILL(kernels) fill_##kernels##_dotprod
#elif defined(LILY_COMPILING_I8MM)
#define LILY_FILL(kernels) fill_##kernels##_i8mm
#else
#define LILY_FILL(kernels) fill_##kernels
#endif

}  // namespace lily::cpu
