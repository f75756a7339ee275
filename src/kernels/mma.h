// The tensor cores' own instruction, for kernels that have a body of their own on CUDA: one simdgroup adds a 16 x 16
// times 16 x 8 product of bf16 values to 16 x 8 floats.
//
// With g = lane / 4 and t = lane % 4 a lane holds, two values a word:
//   a[0] = A[g][2t, 2t+1]   a[1] = A[g+8][2t, 2t+1]   a[2] = A[g][2t+8, 2t+9]   a[3] = A[g+8][2t+8, 2t+9]
//   b[0] = B[2t, 2t+1][g]   b[1] = B[2t+8, 2t+9][g]
//   c[0], c[1] = C[g][2t, 2t+1]                        c[2], c[3] = C[g+8][2t, 2t+1]
//
// Beside it what feeds it: load_matrices (ldmatrix: four 8 x 8 matrices of bf16 from threadgroup memory, lane i giving
// the address of row i % 8 of matrix i / 8; a lane gets two neighbours of row lane / 4 of each, or with TRANSPOSED of
// column lane / 4), copies of 16 bytes that do not pass through registers, and arithmetic on two bf16 values at once.
// Metal never sees this file. The emulator runs it by its definition.
#pragma once

#include "lily.h"

#if defined(__CUDACC__)
#define LILY_MMA
METAL_FUNC void mma_16x8x16(thread float* c, uint a0, uint a1, uint a2, uint a3, uint b0, uint b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
      "%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
template <bool TRANSPOSED>
METAL_FUNC void load_matrices(thread uint* r, threadgroup const bfloat* row) {
  const uint address = uint(__cvta_generic_to_shared(row));
  if (TRANSPOSED) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  }
}
// Starts a copy of 16 bytes (zeros unless `valid`), or of BYTES: 4, 8 or 16; finish_copies waits until at most N groups
// of copies are under way.
METAL_FUNC void start_copy(threadgroup bfloat* to, device const bfloat* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(uint(__cvta_generic_to_shared(to))), "l"(from), "r"(valid ? 16 : 0)
               : "memory");
}
template <int BYTES>
METAL_FUNC void start_copy(threadgroup void* to, device const void* from) {
  if (BYTES == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :
                 : "r"(uint(__cvta_generic_to_shared(to))), "l"(from)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;"
                 :
                 : "r"(uint(__cvta_generic_to_shared(to))), "l"(from), "n"(BYTES)
                 : "memory");
  }
}
METAL_FUNC void end_copy_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N>
METAL_FUNC void finish_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
// An 8 x 8 matrix of bf16, two neighbours of row lane / 4 a lane, to its transpose.
METAL_FUNC uint transpose_matrix(uint pair) {
  uint r;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(pair));
  return r;
}
METAL_FUNC uint fma_pair(uint a, uint b, uint c) {
  uint d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}
#elif !defined(__METAL_VERSION__)
#define LILY_MMA
inline uint pair_of_bits(uint low, uint high) {
  return low | high << 16;
}
inline void mma_16x8x16(float* c, uint a0, uint a1, uint a2, uint a3, uint b0, uint b1,
                        const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const lily::emulated::Where where{file, line};
  float a[16][16], b[16][8];
  const auto spread = [](uint pair, float* first, int step) {
    const std::uint32_t halves[2] = {pair << 16, pair & 0xffff0000U};
    for (int i = 0; i < 2; ++i) std::memcpy(first + i * step, &halves[i], 4);
  };
  const auto gather = [&](uint low, uint high, auto place) {
    const std::uint64_t* all = lily::emulated::exchange(low | std::uint64_t{high} << 32, where);
    for (unsigned lane = 0; lane < 32; ++lane)
      place(lane / 4, lane % 4 * 2, static_cast<uint>(all[lane]), static_cast<uint>(all[lane] >> 32));
  };
  gather(a0, a1, [&](unsigned g, unsigned k, uint low, uint high) {
    spread(low, &a[g][k], 1);
    spread(high, &a[g + 8][k], 1);
  });
  gather(a2, a3, [&](unsigned g, unsigned k, uint low, uint high) {
    spread(low, &a[g][k + 8], 1);
    spread(high, &a[g + 8][k + 8], 1);
  });
  gather(b0, b1, [&](unsigned g, unsigned k, uint low, uint high) {
    spread(low, &b[k][g], 8);
    spread(high, &b[k + 8][g], 8);
  });
  const unsigned lane = lily::emulated::current_lane().lane, row = lane / 4, column = lane % 4 * 2;
  for (unsigned i = 0; i < 4; ++i)
    for (unsigned k = 0; k < 16; ++k) c[i] += a[row + i / 2 * 8][k] * b[k][column + i % 2];
}
template <bool TRANSPOSED>
void load_matrices(uint* r, const bfloat* row, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const std::uint64_t* rows = lily::emulated::exchange(reinterpret_cast<std::uintptr_t>(row), {file, line});
  const unsigned lane = lily::emulated::current_lane().lane, g = lane / 4, t = lane % 4 * 2;
  for (unsigned m = 0; m < 4; ++m) {
    bfloat pair[2];
    for (unsigned i = 0; i < 2; ++i) {
      const unsigned from = TRANSPOSED ? t + i : g, column = TRANSPOSED ? g : t + i;
      pair[i] = reinterpret_cast<const bfloat*>(rows[8 * m + from])[column];
    }
    r[m] = pair_of_bits(pair[0].bits, pair[1].bits);
  }
}
inline void start_copy(bfloat* to, const bfloat* from, bool valid) {
  if (valid) {
    std::memcpy(to, from, 16);
  } else {
    std::memset(to, 0, 16);
  }
}
template <int BYTES>
void start_copy(void* to, const void* from) {
  std::memcpy(to, from, BYTES);
}
inline void end_copy_group() {}
template <int N>
void finish_copies() {}
inline uint transpose_matrix(uint pair, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const std::uint64_t* all = lily::emulated::exchange(pair, {file, line});
  const unsigned lane = lily::emulated::current_lane().lane, g = lane / 4, t = lane % 4 * 2;
  const auto at = [&](unsigned row, unsigned column) {
    return static_cast<uint>(all[row * 4 + column / 2] >> (column % 2 * 16)) & 0xffffU;
  };
  return pair_of_bits(at(t, g), at(t + 1, g));
}
inline uint fma_pair(uint a, uint b, uint c) {
  const auto part = [](uint pair, int i) { return as_type<float>(i == 0 ? pair << 16 : pair & 0xffff0000U); };
  return pair_of_bits(bfloat(part(a, 0) * part(b, 0) + part(c, 0)).bits,
                      bfloat(part(a, 1) * part(b, 1) + part(c, 1)).bits);
}
#endif
