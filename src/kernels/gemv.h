// One simdgroup's part of y = W x for a quantised W: 16 rows, and of each row the slice of 128 bytes of codes (256
// values at 4 bits, 128 at 8 bits) that the simdgroups of a threadgroup share out among themselves.
//
//   Tile t;  t.zero();
//   t.load(weights, first_row, slice, stage, lane);   asks for the codes; needs no activations
//   t.prepare(v, stage, lane);                        v: the lane's kValues consecutive values of x in this slice
//   t.multiply(stage, lane);                          adds their products
//   t.finish(part, lane);                             part[r] = this simdgroup's share of row r, r below kRows
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
  static constant constexpr int kRows = 16;
  using Stage = LaneStage;
  uint code[16];
  bfloat scale[16], bias[16];
  float sum[16], x[kValues];

  METAL_FUNC void zero() {
    METAL_PRAGMA_UNROLL
    for (int r = 0; r < 16; ++r) sum[r] = 0.f;
  }
  METAL_FUNC void load(QuantizedRows w, uint first_row, uint slice, threadgroup Stage&, uint lane) {
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
  METAL_FUNC void prepare(thread const float* v, threadgroup Stage&, uint) {
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < kValues; ++i) x[i] = v[i];
  }
  METAL_FUNC void multiply(threadgroup Stage&, uint) {
    float total = 0.f;
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < kValues; ++i) total += x[i];
    METAL_PRAGMA_UNROLL
    for (int r = 0; r < 16; ++r) {
      float dot = 0.f;
      METAL_PRAGMA_UNROLL
      for (int i = 0; i < kValues; ++i) dot += x[i] * float((code[r] >> (i * BITS)) & ((1u << BITS) - 1u));
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

// The form for tensor cores; whole slices only. TILES times 16 rows.
//
// The codes go into the left operand as they are: 0x4300 | code is the bf16 value 128 + code, and the surplus 128 *
// sum(x) is taken off with the bias. x goes into the right operand in two bf16 parts, high + low, which stand in
// different columns: to the result they are as good as float32. The columns also keep the two groups of 64 apart that
// one instruction reads:
//   column 0: first group, high   1: second group, high   2: first group, low   3: second group, low   4..7: zero
// 8-bit codes are taken as two 4-bit halves, the upper with 16 x.
//
// Codes wait in threadgroup memory, where they are copied to without passing through registers: there they may be on
// their way in any number while the threadgroup waits for its inputs. Each lane copies what it will use itself.
template <int TILES>
struct MmaStage {
  vec<uint, 4> code[TILES][4][32];  // [64-byte chunk, row g or g + 8][lane]
  vec<uint, 2> scale[TILES][32];    // lane 4 g + t: scales of row g, biases of row g, scales of row g + 8, biases of it
  vec<uint, 4> x[2][32];  // [high, low][chunk, word, t]: what one lane's instructions for one word of codes need
  float sum[4];           // of x, over quarters of the slice
};

template <int BITS, int TILES>
struct MmaTile {
  static constant constexpr int kValues = 32 / BITS;
  static constant constexpr int kSlice = 32 * kValues;
  static constant constexpr int kRows = 16 * TILES;
  static constant constexpr int kGroups = kSlice / 64;  // of a slice: 4 or 2
  using Stage = MmaStage<TILES>;
  float sum[TILES][2];

  METAL_FUNC void zero() {
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < TILES; ++i) sum[i][0] = sum[i][1] = 0.f;
  }
  METAL_FUNC void load(QuantizedRows w, uint first_row, uint slice, threadgroup Stage& stage, uint lane) {
    METAL_PRAGMA_UNROLL
    for (uint i = 0; i < TILES; ++i) {
      METAL_PRAGMA_UNROLL
      for (uint r = 0; r < 2; ++r) {
        const uint row = min(first_row + 16 * i + lane / 4 + 8 * r, w.rows - 1);
        device const uint* p = w.codes + (ulong(row) * w.columns / kValues + slice * 32 + lane % 4 * 4);
        METAL_PRAGMA_UNROLL
        for (uint c = 0; c < 2; ++c) start_copy<16>(&stage.code[i][2 * c + r][lane], p + 16 * c);
      }
      const uint row = min(first_row + 16 * i + lane / 4 + lane % 4 / 2 * 8, w.rows - 1);
      const ulong group = ulong(row) * (w.columns / 64) + slice * kGroups;
      start_copy<2 * kGroups>(&stage.scale[i][lane], (lane % 2 == 0 ? w.scales : w.biases) + group);
    }
    end_copy_group();
  }
  // Splits the lane's values and lays them out as the instructions take them.
  METAL_FUNC void prepare(thread const float* v, threadgroup Stage& stage, uint lane) {
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
  }
  METAL_FUNC void multiply(threadgroup Stage& stage, uint lane) {
    finish_copies<0>();
    simdgroup_barrier(mem_flags::mem_threadgroup);
    const uint t = lane % 4, own_group = lane / 4 % 2, part = lane / 8;
    const bool mine = part < 2 && t / 2 == own_group;
    METAL_PRAGMA_UNROLL
    for (int c = 0; c < 2; ++c) {
      vec<uint, 4> b[4];
      METAL_PRAGMA_UNROLL
      for (int word = 0; word < 4; ++word) {
        b[word][0] = b[word][1] = b[word][2] = b[word][3] = 0u;
        if (mine) b[word] = stage.x[part][16 * c + 4 * word + t];
      }
      METAL_PRAGMA_UNROLL
      for (int i = 0; i < TILES; ++i) {
        if (i > 0) simdgroup_barrier(mem_flags::mem_none);  // or loads of all tiles come first and want registers
        const vec<uint, 4> q0 = stage.code[i][2 * c][lane], q1 = stage.code[i][2 * c + 1][lane];
        float d[2][4] = {{0.f, 0.f, 0.f, 0.f}, {0.f, 0.f, 0.f, 0.f}};  // two, so that they do not wait for each other
        METAL_PRAGMA_UNROLL
        for (int word = 0; word < 4; ++word) {
          mma_16x8x16(d[0], nibbles(q0[word]), nibbles(q1[word]), nibbles(q0[word] >> 4), nibbles(q1[word] >> 4),
                      b[word][0], b[word][1]);
          mma_16x8x16(d[1], nibbles(q0[word] >> 8), nibbles(q1[word] >> 8), nibbles(q0[word] >> 12),
                      nibbles(q1[word] >> 12), b[word][2], b[word][3]);
        }
        METAL_PRAGMA_UNROLL
        for (uint r = 0; r < 2; ++r) {
          const vec<uint, 2> scales = stage.scale[i][lane / 4 * 4 + 2 * r],
                             biases = stage.scale[i][lane / 4 * 4 + 2 * r + 1];
          METAL_PRAGMA_UNROLL
          for (int g = 0; g < 2; ++g) {
            const float s = group_value(scales, c, g), surplus = BITS == 4 ? 128.f : 128.f * 17.f;
            const float factor = t == 3 ? group_value(biases, c, g) - surplus * s : s;
            sum[i][r] += factor * (t == 3 ? stage.sum[2 * c + g] : d[0][2 * r + g] + d[1][2 * r + g]);
          }
        }
      }
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);  // the stage may be written again
  }
  METAL_FUNC void finish(threadgroup float* part, uint lane) {
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < TILES; ++i) {
      METAL_PRAGMA_UNROLL
      for (int r = 0; r < 2; ++r) {
        sum[i][r] += simd_shuffle_xor(sum[i][r], ushort(1));
        sum[i][r] += simd_shuffle_xor(sum[i][r], ushort(2));
      }
      if (lane % 4 < 2) part[16 * i + lane / 4 + 8 * (lane % 4)] = lane % 4 == 0 ? sum[i][0] : sum[i][1];
    }
  }

 private:
  METAL_FUNC static uint nibbles(uint q) { return (q & 0x000f000fu) | 0x43004300u; }
  METAL_FUNC static float group_value(vec<uint, 2> words, int chunk, int group) {
    const int g = BITS == 4 ? 2 * chunk + group : chunk;
    return g % 2 == 0 ? low_half(words[g / 2]) : high_half(words[g / 2]);
  }
  METAL_FUNC static vec<uint, 4> words_of(thread const bfloat* x) {
    vec<uint, 4> w;
    METAL_PRAGMA_UNROLL
    for (int i = 0; i < 4; ++i) {
      const bfloat first = BITS == 4 ? x[i % kValues] : x[i / 2];
      const bfloat second = BITS == 4 ? x[(i + 4) % kValues] : x[i / 2 + 2];
      const bool upper = BITS == 8 && i % 2 == 1;
      w[i] = upper ? pair_of(bfloat(16.f * float(first)), bfloat(16.f * float(second))) : pair_of(first, second);
    }
    return w;
  }
};

#endif
