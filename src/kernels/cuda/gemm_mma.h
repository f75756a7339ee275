// out = A W^T for many rows and a quantised W on the tensor cores: 8 simdgroups make BM rows by 128 columns of out. BITS
// 16: W is bf16 in operand order already (expand_weights), and its rows are copied to where codes would be made bf16.
//
// A (operand order) and W's codes come into threadgroup memory by copies that run kDepth - 1 steps of 64 columns ahead,
// codes one more; the codes of the next step become bf16 there while this step is multiplied. One barrier a step. A
// thread copies the codes that it will make bf16 itself. Rows of 64 values are 8 chunks of 16 bytes; chunk c of row r
// stands at place c ^ (r % 8), so that neither copies nor matrix loads meet in a bank.
//
// PAIRED: of the 16-column pieces of the tile the first 8 are rows of one matrix (gate), the others the same rows of
// another (up), in operand order: a lane then holds gate and up of the same two neighbours of the result.
#pragma once

#include "../gemv.h"
#include "../operand.h"

constant constexpr uint kNoOperandRow = ~0u;

// Steps that are in threadgroup memory at a time. Of the shortest tiles three threadgroups share a multiprocessor.
template <int BM>
struct GemmDepth {
  static constant constexpr int kDepth = BM == 64 ? 4 : 3;
};

template <int BM, int BITS = 4>
struct GemmMmaMemory {
  bfloat a[GemmDepth<BM>::kDepth][BM * 64];
  bfloat b[2][128 * 64];
  vec<uint, 4> codes[GemmDepth<BM>::kDepth + 1][256];
  bfloat scales[2][2][128][8];  // of 8 steps, twice: scales, biases
  uint rows[BM];                // of A
};
template <int BM>
struct GemmMmaMemory<BM, 16> {
  bfloat a[GemmDepth<BM>::kDepth][BM * 64];
  bfloat b[GemmDepth<BM>::kDepth][128 * 64];
  uint rows[BM];
};

METAL_FUNC uint swizzled(uint row, uint chunk) {
  return row * 64 + (chunk ^ (row % 8)) * 8;
}

template <int BM, int BITS, bool PAIRED>
struct GemmMma {
  static constant constexpr int kRowWarps = BM <= 32 ? 1 : 2;
  static constant constexpr int kColumnWarps = 8 / kRowWarps;
  static constant constexpr int kM = BM / kRowWarps / 16;     // 16-row pieces of a simdgroup
  static constant constexpr int kN = 128 / kColumnWarps / 8;  // 8-column pieces, an even number
  static constant constexpr int kCopies = (BM + 31) / 32;     // a thread, of A, in a step

  static constant constexpr int kDepth = GemmDepth<BM>::kDepth;
  static constant constexpr bool kBf16 = BITS == 16;
  static constant constexpr int kStages = kBf16 ? kDepth : 2;  // of b
  static constant constexpr uint kLead = kBf16 ? 0 : 1;        // steps that codes come ahead of their rows of A
  using Memory = GemmMmaMemory<BM, kBf16 ? 16 : 4>;

  float acc[kM][kN][4];
  device const uint* code_row;  // of W, from the thread's columns on
  device const bfloat *scale_row, *bias_row;

  // The tile's row of W (of one of both, if PAIRED) that a thread brings.
  METAL_FUNC static uint weight_row(uint j, uint first_column) {
    const uint in_eight = j % 8;
    return first_column + (PAIRED ? j / 16 * 8 + in_eight / 2 + in_eight % 2 * 4 : j);
  }

  // 8-bit codes (the router's) go through registers when they are needed; they are few.
  METAL_FUNC void start_codes(threadgroup Memory& mem, uint step, uint tid) {
    if constexpr (BITS == 4) start_copy<16>(&mem.codes[step % (kDepth + 1)][tid], code_row + step * 8);
    if constexpr (kBf16) {
      METAL_PRAGMA_UNROLL
      for (uint i = 0; i < 4; ++i)
        start_copy<16>(mem.b[step % kDepth] + swizzled(tid / 2, tid % 2 * 4 + i), code_row + step * 32 + i * 4);
    }
  }
  // Scales or biases of 8 steps from `step` on; rows whose length is no multiple of 16 bytes go without.
  METAL_FUNC void start_scales(threadgroup Memory& mem, uint step, bool whole, uint tid) {
    if constexpr (!kBf16)
      if (whole)
        start_copy<16>(&mem.scales[step / 8 % 2][tid % 2][tid / 2][0], (tid % 2 == 0 ? scale_row : bias_row) + step);
  }

  METAL_FUNC void put_codes(threadgroup Memory& mem, uint step, bool whole, uint tid) {
    const uint row = tid / 2, at = step / 8 % 2;
    const bfloat scale = whole ? mem.scales[at][0][row][step % 8] : scale_row[step];
    const bfloat bias = whole ? mem.scales[at][1][row][step % 8] : bias_row[step];
    threadgroup bfloat* b = mem.b[step % 2];
    METAL_PRAGMA_UNROLL
    for (uint i = 0; i < 4; ++i) {
      vec<uint, 4> words;
      if (BITS == 4) {
        words = four_bits(((threadgroup const uint*)&mem.codes[step % (kDepth + 1)][tid])[i], pair_of(scale, scale),
                          pair_of(bias, bias));
      } else {
        words = eight_bits(code_row + step * 16 + 2 * i, float(scale), float(bias));
      }
      *(threadgroup vec<uint, 4>*)(b + swizzled(row, tid % 2 * 4 + i)) = words;
    }
  }

  METAL_FUNC void start_rows(device const bfloat* a, uint a_stride, thread const uint* rows, threadgroup bfloat* to,
                             uint k0, uint tid) {
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < kCopies; ++i) {
      const uint r = tid / 8 + 32 * i;
      if (BM < 32 && r >= BM) continue;
      const bool valid = rows[i] != kNoOperandRow;
      start_copy(to + swizzled(r, tid % 8), a + ulong(valid ? rows[i] : 0u) * a_stride + k0 + tid % 8 * 8, valid);
    }
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
                      threadgroup Memory& mem, uint tid, uint sg, uint lane) {
    METAL_PRAGMA_UNROLL
    for (int m = 0; m < kM; ++m) METAL_PRAGMA_UNROLL
    for (int n = 0; n < kN; ++n) METAL_PRAGMA_UNROLL
    for (int i = 0; i < 4; ++i) acc[m][n][i] = 0.f;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint rows[kCopies];
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < kCopies; ++i) rows[i] = mem.rows[BM < 32 ? tid / 8 % BM : tid / 8 + 32 * i];
    const uint j = tid / 2, row = min(weight_row(j, first_column), w.rows - 1), steps = w.columns / 64;
    const QuantizedRows own = PAIRED && j / 8 % 2 == 1 ? w2 : w;
    code_row = own.codes + (ulong(row) * w.columns + tid % 2 * 32) * BITS / 32;
    scale_row = own.scales + ulong(row) * steps;
    bias_row = own.biases + ulong(row) * steps;
    const bool whole = steps % 8 == 0;
    METAL_PRAGMA_UNROLL
    for (uint step = 0; step < kDepth - 1; ++step) {
      if (step == 0) {
        start_scales(mem, 0, whole, tid);
        if (!kBf16) start_codes(mem, 0, tid);
      }
      if (step < steps) start_rows(a, a_stride, rows, mem.a[step], step * 64, tid);
      if (step + kLead < steps) start_codes(mem, step + kLead, tid);
      end_copy_group();
    }
    finish_copies<kDepth - 2>();
    threadgroup_barrier(mem_flags::mem_threadgroup);  // scales are brought by others
    if constexpr (!kBf16) put_codes(mem, 0, whole, tid);
    for (uint step = 0; step < steps; ++step) {
      finish_copies<kDepth - 2>();  // up to this step's rows and the next one's codes
      threadgroup_barrier(mem_flags::mem_threadgroup);
      const uint ahead = step + kDepth - 1;
      if (step % 8 == 0 && step + 8 < steps) start_scales(mem, step + 8, whole, tid);
      if (ahead < steps) start_rows(a, a_stride, rows, mem.a[ahead % kDepth], ahead * 64, tid);
      if (ahead + kLead < steps) start_codes(mem, ahead + kLead, tid);
      end_copy_group();
      if constexpr (!kBf16)
        if (step + 1 < steps) put_codes(mem, step + 1, whole, tid);
      multiply(mem.a[step % kDepth], mem.b[step % kStages], sg, lane);
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
  METAL_FUNC static vec<uint, 4> four_bits(uint q, uint scales, uint biases) {
    vec<uint, 4> words;
    METAL_PRAGMA_UNROLL
    for (int j = 0; j < 4; ++j) {
      const uint raised = (q >> (4 * j) & 0x000f000fu) | 0x43004300u;  // 128 + code
      words[j] = fma_pair(fma_pair(raised, 0x3f803f80u, 0xc300c300u), scales, biases);
    }
    return words;
  }
  METAL_FUNC static vec<uint, 4> eight_bits(device const uint* codes, float scale, float bias) {
    float v[8];
    METAL_PRAGMA_UNROLL
    for (int j = 0; j < 8; ++j) v[j] = scale * float((codes[j / 4] >> (8 * (j % 4))) & 255u) + bias;
    return operand_words(v);
  }
};
