// out = A W^T for many rows and a quantised W: one threadgroup makes BM rows (16 or 32) by 64 columns of out, with a
// simdgroup for 16 rows by 32 columns. W is made bf16 in threadgroup memory, 64 columns of it at a time; sums are
// float32. BITS 16: W is bf16 in operand order already (expand_weights), and has neither scales nor biases.
//
// Which rows of A belong to the tile stands in `rows` (kNoRow: none, zeros). PAIRED: the tile's 64 columns are 32 rows
// of one matrix (gate) and the same 32 rows of another (up).
#pragma once

#include "gemv.h"
#include "operand.h"
#include "tile.h"

constant constexpr uint kNoRow = ~0u;

template <int BM>
struct GemmMemory {
  bfloat a[BM][72];
  bfloat b[64][72];
  float c[BM][64];
  uint rows[BM];
};

// 8 codes at 4 bits or 4 at 8 bits, made bf16 in operand order.
template <int BITS>
METAL_FUNC void put_weights(threadgroup bfloat* b, uint column, uint word, float scale, float bias) {
  METAL_PRAGMA_UNROLL
  for (uint i = 0; i < 32 / BITS; ++i)
    b[operand_place(column + i)] = bfloat(scale * float((word >> (i * BITS)) & ((1u << BITS) - 1u)) + bias);
}

// Leaves the product in mem.c, after a barrier.
template <int BM, int BITS, bool PAIRED>
METAL_FUNC void gemm_tile(device const bfloat* a, uint a_stride, QuantizedRows w, QuantizedRows w2, uint first_column,
                          threadgroup GemmMemory<BM>& mem, uint tid, uint sg, uint lane) {
  constexpr uint WORDS = 2 * BITS;  // of 64 columns
  constexpr uint THREADS = 4 * BM;
  const uint sm = sg / 2 * 16, sn = sg % 2 * 32;
  Tile<16, 32> acc;
  acc.zero();
  for (uint k0 = 0; k0 < w.columns; k0 += 64) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = tid; i < BM * 8; i += THREADS) {
      const uint row = mem.rows[i / 8];
      vec<uint, 4> words;
      words[0] = words[1] = words[2] = words[3] = 0u;
      if (row != kNoRow) words = *(device const vec<uint, 4>*)(a + ulong(row) * a_stride + k0 + i % 8 * 8);
      *(threadgroup vec<uint, 4>*)&mem.a[i / 8][i % 8 * 8] = words;
    }
    for (uint i = tid; i < 64 * WORDS; i += THREADS) {
      const uint r = i / WORDS, word = i % WORDS;
      const bool second = PAIRED && r >= 32;
      device const uint* codes = second ? w2.codes : w.codes;
      const uint row = min(first_column + (PAIRED ? r % 32 : r), w.rows - 1);
      const uint code = codes[(ulong(row) * w.columns + k0) * BITS / 32 + word];
      if (BITS == 16) {
        ((threadgroup uint*)&mem.b[r][0])[word] = code;
        continue;
      }
      device const bfloat* scales = second ? w2.scales : w.scales;
      device const bfloat* biases = second ? w2.biases : w.biases;
      const ulong group = ulong(row) * (w.columns / 64) + k0 / 64;
      put_weights<BITS>(&mem.b[r][0], word * (32 / BITS), code, float(scales[group]), float(biases[group]));
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    acc.template mma<64>(&mem.a[sm][0], 72, &mem.b[sn][0], 72, lane);
  }
  acc.store(&mem.c[sm][sn], 64, lane);
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

struct ProjectRows {
  uint rows;     // of A and out
  uint out;      // columns of out
  uint columns;  // of A and W
};
