// out = A W^T for many rows and a quantised W on the tensor cores: 8 simdgroups make BM rows by 128 columns of out.
//
// A (operand order) comes into threadgroup memory by copies that run two steps of 64 columns ahead, W's codes into
// registers one step ahead; they become bf16 in threadgroup memory while the step before is multiplied. One barrier a
// step. Rows of 64 values are 8 chunks of 16 bytes; chunk c of row r stands at place c ^ (r % 8), so that neither
// copies nor matrix loads meet in a bank.
//
// PAIRED: of the 16-column pieces of the tile the first 8 are rows of one matrix (gate), the others the same rows of
// another (up), in operand order: a lane then holds gate and up of the same two neighbours of the result.
#pragma once

#include "../gemv.h"
#include "../operand.h"

constant constexpr uint kNoOperandRow = ~0u;

template <int BM>
struct GemmMmaMemory {
  bfloat a[3][BM * 64];
  bfloat b[2][128 * 64];
  uint rows[BM];  // of A
};

METAL_FUNC uint swizzled(uint row, uint chunk) {
  return row * 64 + (chunk ^ (row % 8)) * 8;
}

template <int BM, int BITS, bool PAIRED>
struct GemmMma {
  static constant constexpr int kRowWarps = BM == 32 ? 1 : 2;
  static constant constexpr int kColumnWarps = 8 / kRowWarps;
  static constant constexpr int kM = BM / kRowWarps / 16;     // 16-row pieces of a simdgroup
  static constant constexpr int kN = 128 / kColumnWarps / 8;  // 8-column pieces, an even number
  static constant constexpr int kCopies = BM / 32;            // a thread, of A, in a step

  float acc[kM][kN][4];
  vec<uint, 4> code[BITS / 4];
  bfloat scale, bias;

  // The tile's row of W (of one of both, if PAIRED) that a thread brings.
  METAL_FUNC static uint weight_row(uint j, uint first_column) {
    const uint in_eight = j % 8;
    return first_column + (PAIRED ? j / 16 * 8 + in_eight / 2 + in_eight % 2 * 4 : j);
  }

  METAL_FUNC void load_codes(QuantizedRows w, uint row, uint k0, uint tid) {
    device const uint* p = w.codes + (ulong(row) * w.columns + k0 + tid % 2 * 32) * BITS / 32;
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < BITS / 4; ++i) code[i] = stream((device const vec<uint, 4>*)p + i);
    const ulong group = ulong(row) * (w.columns / 64) + k0 / 64;
    scale = w.scales[group];
    bias = w.biases[group];
  }

  METAL_FUNC void put_codes(threadgroup bfloat* b, uint tid) {
    const uint row = tid / 2;
    METAL_PRAGMA_UNROLL
    for (uint i = 0; i < 4; ++i)
      *(threadgroup vec<uint, 4>*)(b + swizzled(row, tid % 2 * 4 + i)) = BITS == 4 ? four_bits(i) : eight_bits(i);
  }

  METAL_FUNC void start_rows(device const bfloat* a, uint a_stride, thread const uint* rows, threadgroup bfloat* to,
                             uint k0, uint tid) {
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < kCopies; ++i) {
      const uint r = tid / 8 + 32 * i;
      const bool valid = rows[i] != kNoOperandRow;
      start_copy(to + swizzled(r, tid % 8), a + ulong(valid ? rows[i] : 0u) * a_stride + k0 + tid % 8 * 8, valid);
    }
    end_copy_group();
  }

  METAL_FUNC void multiply(threadgroup const bfloat* a, threadgroup const bfloat* b, uint sg, uint lane) {
    const uint first_row = sg / kColumnWarps * (BM / kRowWarps), first_column = sg % kColumnWarps * (8 * kN);
    METAL_PRAGMA_UNROLL
    for (uint k = 0; k < 4; ++k) {
      uint fa[kM][4], fb[kN / 2][4];
      METAL_PRAGMA_UNROLL
      for (uint m = 0; m < kM; ++m)
        load_matrices<false>(fa[m], a + swizzled(first_row + m * 16 + lane % 16, 2 * k + lane / 16));
      METAL_PRAGMA_UNROLL
      for (uint n = 0; n < kN / 2; ++n)
        load_matrices<false>(fb[n],
                             b + swizzled(first_column + n * 16 + lane / 16 * 8 + lane % 8, 2 * k + lane / 8 % 2));
      METAL_PRAGMA_UNROLL
      for (int m = 0; m < kM; ++m) METAL_PRAGMA_UNROLL
      for (int n = 0; n < kN; ++n)
        mma_16x8x16(acc[m][n], fa[m][0], fa[m][1], fa[m][2], fa[m][3], fb[n / 2][n % 2 * 2], fb[n / 2][n % 2 * 2 + 1]);
    }
  }

  // mem.rows are set; w2 is used if PAIRED.
  METAL_FUNC void run(device const bfloat* a, uint a_stride, QuantizedRows w, QuantizedRows w2, uint first_column,
                      threadgroup GemmMmaMemory<BM>& mem, uint tid, uint sg, uint lane) {
    METAL_PRAGMA_UNROLL
    for (int m = 0; m < kM; ++m) METAL_PRAGMA_UNROLL
    for (int n = 0; n < kN; ++n) METAL_PRAGMA_UNROLL
    for (int i = 0; i < 4; ++i) acc[m][n][i] = 0.f;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint rows[kCopies];
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < kCopies; ++i) rows[i] = mem.rows[tid / 8 + 32 * i];
    const uint j = tid / 2, row = min(weight_row(j, first_column), w.rows - 1);
    const QuantizedRows own = PAIRED && j / 8 % 2 == 1 ? w2 : w;
    const uint steps = w.columns / 64;
    start_rows(a, a_stride, rows, mem.a[0], 0, tid);
    if (steps > 1) {
      start_rows(a, a_stride, rows, mem.a[1], 64, tid);
    } else {
      end_copy_group();
    }
    load_codes(own, row, 0, tid);
    put_codes(mem.b[0], tid);
    if (steps > 1) load_codes(own, row, 64, tid);
    for (uint step = 0; step < steps; ++step) {
      finish_copies<1>();
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (step + 2 < steps) {
        start_rows(a, a_stride, rows, mem.a[(step + 2) % 3], (step + 2) * 64, tid);
      } else {
        end_copy_group();
      }
      if (step + 1 < steps) put_codes(mem.b[(step + 1) % 2], tid);
      if (step + 2 < steps) load_codes(own, row, (step + 2) * 64, tid);
      multiply(mem.a[step % 3], mem.b[step % 2], sg, lane);
    }
  }

  // Where a lane's value i of piece (m, n) stands in the tile.
  METAL_FUNC static uint row_of(uint m, uint i, uint sg, uint lane) {
    return sg / kColumnWarps * (BM / kRowWarps) + m * 16 + i / 2 * 8 + lane / 4;
  }
  METAL_FUNC static uint column_of(uint n, uint sg, uint lane) {  // of values 0 and 2; 1 and 3 are the next column
    return sg % kColumnWarps * (8 * kN) + n * 8 + lane % 4 * 2;
  }

 private:
  METAL_FUNC vec<uint, 4> four_bits(uint i) {
    const uint q = code[0][i], s = pair_of(scale, scale), b = pair_of(bias, bias);
    vec<uint, 4> words;
    METAL_PRAGMA_UNROLL
    for (int j = 0; j < 4; ++j) {
      const uint raised = (q >> (4 * j) & 0x000f000fu) | 0x43004300u;  // 128 + code
      words[j] = fma_pair(fma_pair(raised, 0x3f803f80u, 0xc300c300u), s, b);
    }
    return words;
  }
  METAL_FUNC vec<uint, 4> eight_bits(uint i) {
    const uint first = code[i / 2 * (BITS / 8)][i % 2 * 2], second = code[i / 2 * (BITS / 8)][i % 2 * 2 + 1];
    float v[8];
    METAL_PRAGMA_UNROLL
    for (int j = 0; j < 4; ++j) {
      v[j] = float(scale) * float((first >> (8 * j)) & 255u) + float(bias);
      v[j + 4] = float(scale) * float((second >> (8 * j)) & 255u) + float(bias);
    }
    return operand_words(v);
  }
};
