// One simdgroup's part of y = W x for a quantised W: 16 rows, and of each row the slice of 128 bytes of codes (256
// values at 4 bits, 128 at 8 bits) that the simdgroups of a threadgroup share out among themselves.
//
//   Tile t;  t.zero();
//   t.load(weights, first_row, slice, lane);    asks for the codes; needs no activations
//   t.add(v, stage, lane);                      v: the lane's kValues consecutive values of x in this slice
//   t.finish(part, lane);                       part[r] = this simdgroup's share of row r, r in 0..15
//
// w = scale * code + bias with one scale and bias for 64 values, so a row's share is
//   sum over groups of  scale * sum(code * x) + bias * sum(x).
// Rows past the end are read as the last row; who uses part leaves them out.
#pragma once

#include "mma.h"
#include "numeric.h"
#include "stream.h"

struct QuantizedRows {
  device const uint* codes;     // [rows, columns * bits / 32]
  device const bfloat* scales;  // [rows, columns / 64]
  device const bfloat* biases;  // [rows, columns / 64]
  uint rows;
  uint columns;  // a multiple of 64
};

METAL_FUNC QuantizedRows quantized_rows(device const uint* codes, device const bfloat* scales,
                                        device const bfloat* biases, uint rows, uint columns) {
  QuantizedRows w;
  w.codes = codes;
  w.scales = scales;
  w.biases = biases;
  w.rows = rows;
  w.columns = columns;
  return w;
}

// Threadgroup memory that a tile wants for each simdgroup.
struct LaneStage {
  float unused;
};

// The plain form, for every GPU and every size: a lane holds one word of codes of each row.
// RAGGED: the columns need not fill whole slices.
template <int BITS, bool RAGGED>
struct LaneTile {
  static constant constexpr int kValues = 32 / BITS;  // of x, a lane
  static constant constexpr int kSlice = 32 * kValues;
  using Stage = LaneStage;
  uint code[16];
  bfloat scale[16], bias[16];
  float sum[16];

  METAL_FUNC void zero() {
    METAL_PRAGMA_UNROLL
    for (int r = 0; r < 16; ++r) sum[r] = 0.f;
  }
  METAL_FUNC void load(QuantizedRows w, uint first_row, uint slice, uint lane) {
    uint value = slice * kSlice + lane * kValues;
    if (RAGGED) value = min(value, w.columns - uint(kValues));
    METAL_PRAGMA_UNROLL
    for (int r = 0; r < 16; ++r) {
      const uint row = min(first_row + r, w.rows - 1);
      const uint group = row * (w.columns / 64) + value / 64;
      code[r] = stream(w.codes + (ulong(row) * w.columns + value) / kValues);
      scale[r] = w.scales[group];
      bias[r] = w.biases[group];
    }
  }
  METAL_FUNC void add(thread const float* v, threadgroup Stage&, uint) {
    float total = 0.f;
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < kValues; ++i) total += v[i];
    METAL_PRAGMA_UNROLL
    for (int r = 0; r < 16; ++r) {
      float dot = 0.f;
      METAL_PRAGMA_UNROLL
      for (int i = 0; i < kValues; ++i) dot += v[i] * float((code[r] >> (i * BITS)) & ((1u << BITS) - 1u));
      sum[r] += float(scale[r]) * dot + float(bias[r]) * total;
    }
  }
  METAL_FUNC void finish(threadgroup float* part, uint lane) thread {
    float v[16];
    METAL_PRAGMA_UNROLL
    for (int r = 0; r < 16; ++r) v[r] = sum[r];
    const float row_sum = simd_sum_of_16(v, lane);
    if (lane % 2 == 0) part[lane / 2] = row_sum;
  }
};

#if defined(LILY_MMA)

struct MmaStage {
  vec<uint, 4> x[2][32];  // [high, low][chunk, word, t]: what one lane's instructions for one word of codes need
  float sum[4];           // of x, over quarters of the slice
};

// The form for tensor cores; whole slices only. The codes go into the left operand as they are: 0x4300 | code is the
// bf16 value 128 + code, and the surplus 128 * sum(x) is taken off with the bias. x goes into the right operand in two
// bf16 parts, high + low, which stand in different columns: to the result they are as good as float32. The columns also
// keep the two groups of 64 apart that one instruction reads:
//   column 0: first group, high   1: second group, high   2: first group, low   3: second group, low   4..7: zero
// 8-bit codes are taken as two 4-bit halves, the upper with 16 x.
template <int BITS>
struct MmaTile {
  static constant constexpr int kValues = 32 / BITS;
  static constant constexpr int kSlice = 32 * kValues;
  static constant constexpr int kGroups = kSlice / 64;  // of a slice: 4 or 2
  static constant constexpr int kWords = kGroups / 2;   // that hold their scales
  using Stage = MmaStage;
  vec<uint, 4> code[2][2];                 // [64-byte chunk][row g, row g + 8]
  uint scale[2][kWords], bias[2][kWords];  // [row][pairs of groups]
  float sum[2];

  METAL_FUNC void zero() { sum[0] = sum[1] = 0.f; }
  METAL_FUNC void load(QuantizedRows w, uint first_row, uint slice, uint lane) {
    METAL_PRAGMA_UNROLL
    for (int r = 0; r < 2; ++r) {
      const uint row = min(first_row + lane / 4 + 8 * r, w.rows - 1);
      device const uint* p = w.codes + (ulong(row) * w.columns / kValues + slice * 32 + lane % 4 * 4);
      METAL_PRAGMA_UNROLL
      for (int c = 0; c < 2; ++c) code[c][r] = stream((device const vec<uint, 4>*)(p + 16 * c));
      const uint first = row * (w.columns / 64) + slice * kGroups;
      METAL_PRAGMA_UNROLL
      for (int i = 0; i < kWords; ++i) {
        scale[r][i] = stream((device const uint*)(w.scales + first) + i);
        bias[r][i] = stream((device const uint*)(w.biases + first) + i);
      }
    }
  }
  METAL_FUNC void add(thread const float* v, threadgroup Stage& stage, uint lane) {
    put(v, stage, lane);
    const uint t = lane % 4, half_of_column = lane / 4 % 2, part = lane / 8;
    const bool mine = part < 2 && t / 2 == half_of_column;
    METAL_PRAGMA_UNROLL
    for (int c = 0; c < 2; ++c) {
      float d[4] = {0.f, 0.f, 0.f, 0.f};
      METAL_PRAGMA_UNROLL
      for (int word = 0; word < 4; ++word) {
        vec<uint, 4> b;
        b[0] = b[1] = b[2] = b[3] = 0u;
        if (mine) b = stage.x[part][16 * c + 4 * word + t];
        const uint q0 = code[c][0][word], q1 = code[c][1][word];
        mma_16x8x16(d, nibbles(q0), nibbles(q1), nibbles(q0 >> 4), nibbles(q1 >> 4), b[0], b[1]);
        mma_16x8x16(d, nibbles(q0 >> 8), nibbles(q1 >> 8), nibbles(q0 >> 12), nibbles(q1 >> 12), b[2], b[3]);
      }
      METAL_PRAGMA_UNROLL
      for (int r = 0; r < 2; ++r) METAL_PRAGMA_UNROLL
      for (int side = 0; side < 2; ++side) {
        const float s = group_value(scale[r], c, side);
        const float surplus = BITS == 4 ? 128.f : 128.f * 17.f;
        const float factor = t == 3 ? group_value(bias[r], c, side) - surplus * s : s;
        sum[r] += factor * (t == 3 ? stage.sum[2 * c + side] : d[2 * r + side]);
      }
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);  // the stage may be written again
  }
  METAL_FUNC void finish(threadgroup float* part, uint lane) {
    METAL_PRAGMA_UNROLL
    for (int r = 0; r < 2; ++r) {
      sum[r] += simd_shuffle_xor(sum[r], ushort(1));
      sum[r] += simd_shuffle_xor(sum[r], ushort(2));
    }
    if (lane % 4 < 2) part[lane / 4 + 8 * (lane % 4)] = lane % 4 == 0 ? sum[0] : sum[1];
  }

 private:
  METAL_FUNC static uint nibbles(uint q) { return (q & 0x000f000fu) | 0x43004300u; }
  METAL_FUNC static float group_value(thread const uint* words, int chunk, int side) {
    const int group = BITS == 4 ? 2 * chunk + side : chunk;
    return group % 2 == 0 ? low_half(words[group / 2]) : high_half(words[group / 2]);
  }
  // Splits the lane's values and lays them out as the instructions take them.
  METAL_FUNC void put(thread const float* v, threadgroup Stage& stage, uint lane) {
    bfloat high[kValues], low[kValues];
    float total = 0.f;
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < kValues; ++i) {
      high[i] = bfloat(v[i]);
      low[i] = bfloat(v[i] - float(high[i]));
      total += float(high[i]) + float(low[i]);
    }
    const uint place = lane / 16 * 16 + lane % 4 * 4 + lane / 4 % 4;
    stage.x[0][place] = words_of(high);
    stage.x[1][place] = words_of(low);
    total += simd_shuffle_xor(total, ushort(1));
    total += simd_shuffle_xor(total, ushort(2));
    total += simd_shuffle_xor(total, ushort(4));
    if (lane % 8 == 0) stage.sum[lane / 8] = total;
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
  METAL_FUNC static vec<uint, 4> words_of(thread const bfloat* x) {
    vec<uint, 4> w;
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < 4; ++i) {
      const bfloat first = BITS == 4 ? x[i % kValues] : x[i / 2],
                   second = BITS == 4 ? x[(i + 4) % kValues] : x[i / 2 + 2];
      const bool upper = BITS == 8 && i % 2 == 1;
      w[i] = upper ? pair_of(bfloat(16.f * float(first)), bfloat(16.f * float(second))) : pair_of(first, second);
    }
    return w;
  }
};

#endif
