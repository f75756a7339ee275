// The inner loops of the CPU backend, compiled once per instruction set and reached through tables of functions. They
// know nothing of threads, tensors or timelines: raw pointers, row strides in elements. No two arguments overlap unless
// it is said.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/cpu/matrix.h"
#include "ops/cpu/records.h"

namespace lily::cpu {

/// out[m][r] (+)= sum_i w[begin + r][i] * x[index[m]][i] for r < rows.
struct LinearCall {
  const QuantRows* weight = nullptr;
  std::int64_t begin = 0;
  std::int64_t rows = 0;
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  const std::int32_t* index = nullptr;  // nullptr: row m is x's row m
  std::int64_t m = 0;
  float* out = nullptr;  // column 0 is weight row `begin`
  std::int64_t out_stride = 0;
  bool add = false;
  float* scratch = nullptr;  // linear_scratch() floats
};
constexpr std::int64_t kLinearRows = 64;  // widened at a time
inline std::int64_t linear_scratch(const QuantRows& weight) {
  return kLinearRows * weight.in;
}

/// As LinearCall with activations in records (records.h): 4-bit codes in groups of 64, integer products, float32 sums
/// of the groups' results.
struct IntegerCall {
  const QuantRows* weight = nullptr;
  std::int64_t begin = 0;
  std::int64_t rows = 0;
  const std::uint8_t* x = nullptr;  // records of `layout`
  RecordLayout layout;
  const std::int32_t* index = nullptr;  // nullptr: row m is record m
  std::int64_t m = 0;
  float* out = nullptr;  // column 0 is weight row `begin`
  std::int64_t out_stride = 0;
  bool add = false;
  std::uint8_t* scratch = nullptr;  // kTilesAtOnce * integer_scratch() or matrix_unit_scratch() bytes, aligned to 64
  bool same_records = false;        // as in the call before, which had the same scratch
  const QuantRows* next = nullptr;  // of the thread's next call: its first rows are sent for meanwhile
  std::int64_t next_begin = 0;
};
constexpr std::int64_t kMaxTileRows = 16;
constexpr std::int64_t kTilesAtOnce = 4;
/// For a tile: its codes, scales and biases transposed.
inline std::int64_t integer_scratch(std::int64_t in) {
  return kMaxTileRows * (in / 2 + 8 * (in / kRecordGroup) + 64);
}
inline bool fits_records(const QuantRows& weight) {
  return weight.bits == 4 && weight.group == kRecordGroup && weight.in % kRecordGroup == 0;
}

/// Depthwise causal convolution over time, then SiLU: out[t][c] = silu(sum_j taps[c][j] * x[t - (kernel - 1) + j][c]).
/// Rows before the first come from `history` [kernel - 1, channels].
struct ConvCall {
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  std::int64_t rows = 0;
  std::int64_t channels = 0;
  const float* taps = nullptr;  // [channels, kernel]
  std::int64_t kernel = 4;
  const float* history = nullptr;
  std::int64_t history_stride = 0;
  float* out = nullptr;  // [rows, channels]
  std::int64_t out_stride = 0;
};

/// The delta rule of one value head over consecutive tokens, S[k][v] in place:
/// S = g S; u = beta (v - k S); S = S + k u^T; y = q S.
struct DeltaCall {
  float* state = nullptr;  // [key_dim, value_dim]
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  std::int64_t rows = 0;
  const float* q = nullptr;  // [rows, key_dim], normalised and scaled
  const float* k = nullptr;  // [rows, key_dim], normalised and scaled
  const float* v = nullptr;  // [rows, value_dim]
  std::int64_t v_stride = 0;
  const float* decay = nullptr;  // g, [rows]
  const float* beta = nullptr;   // [rows]
  float* y = nullptr;            // [rows, value_dim]
  std::int64_t y_stride = 0;
};

/// What softmax attention over a range of tokens gives; ranges can be joined.
struct Attended {
  float* maximum = nullptr;  // [queries], of the scores q . k
  float* sum = nullptr;      // [queries], of the weights 2^(score - maximum)
  float* out = nullptr;      // [queries, head_dim], of the weights times the values
};
constexpr std::int64_t kAttendRange = 256;  // tokens at most

/// The weights of several queries over one range of tokens that all of them see. A query's result depends on itself and
/// the range alone.
struct AttendScoresCall {
  const float* q = nullptr;  // [queries, head_dim], scaled by log2(e) / sqrt(head_dim)
  std::int64_t queries = 0;
  std::int64_t head_dim = 0;
  const void* k = nullptr;  // [tokens, head_dim], float32 or float16
  bool float16 = false;
  std::int64_t tokens = 0;
  float* weights = nullptr;  // attend_weights() floats, in the kernels' own order
  float* maximum = nullptr;  // as Attended's
  float* sum = nullptr;
  std::span<const std::byte> ahead;  // memory that is asked for meanwhile
};
/// What the weights make of the values.
struct AttendValuesCall {
  const float* weights = nullptr;
  std::int64_t queries = 0;
  std::int64_t head_dim = 0;
  const void* v = nullptr;  // [tokens, head_dim], float32 or float16
  bool float16 = false;
  std::int64_t tokens = 0;
  float* out = nullptr;              // as Attended's
  std::span<const std::byte> ahead;  // memory that is asked for meanwhile
};
/// Tiles of up to 8 queries, and single queries that are left.
constexpr std::int64_t kMostQueryTile = 8;
inline std::int64_t attend_weights(std::int64_t queries) {
  const std::int64_t tiles = queries / kMostQueryTile + queries % kMostQueryTile;
  return tiles * kMostQueryTile * kAttendRange;
}

struct Kernels {
  /// out = x / sqrt(mean(x^2) + eps) * factor * weight; weight may be nullptr, out may be x.
  void (*rms_norm)(const float* x, const float* weight, float eps, float factor, std::int64_t n, float* out);
  /// out[i] = silu(gate[i]) * up[i]; out may be gate or up.
  void (*silu_mul)(const float* gate, const float* up, std::int64_t n, float* out);
  /// out[i] = factor * x[i] * sigmoid(gate[i])
  void (*sigmoid_gate)(const float* x, const float* gate, float factor, std::int64_t n, float* out);
  /// out[i] += factor * x[i]
  void (*scaled_add)(const float* x, float factor, std::int64_t n, float* out);
  void (*dequantize)(const QuantRows& weight, std::int64_t row, float* out);
  void (*linear)(const LinearCall& call);
  /// The groups [first_group, first_group + groups) of one row to its record; x is the first group's first value.
  void (*quantize)(const float* x, std::int64_t first_group, std::int64_t groups, const RecordLayout& layout,
                   std::uint8_t* record);
  void (*integer_rows)(const IntegerCall& call);
  /// The same for many rows of activations; `rows` must be a multiple of tile_rows. Absent where tile_rows is 0.
  void (*integer_tiles)(const IntegerCall& call);
  std::int64_t tile_rows;
  /// As integer_tiles, by a unit for products of matrices: one plane of records. Absent on CPUs without one.
  void (*matrix_unit)(const IntegerCall& call);
  std::int64_t (*matrix_unit_scratch)(std::int64_t in);
  void (*conv_silu)(const ConvCall& call);
  void (*delta)(const DeltaCall& call);
  void (*attend_scores)(const AttendScoresCall& call);
  void (*attend_values)(const AttendValuesCall& call);
  /// `all` becomes the result over its tokens and `next`'s together.
  void (*join_attended)(const Attended& next, std::int64_t queries, std::int64_t head_dim, const Attended& all);
  /// Rounded to nearest; beyond the largest float16, that.
  void (*to_float16)(const float* x, std::int64_t n, std::uint16_t* out);
  void (*from_float16)(const std::uint16_t* x, std::int64_t n, float* out);
  /// Multiplies and adds bytes, nothing else; returns how many multiplications and additions that were. Absent where
  /// there are no vectors.
  double (*dot_loop)(std::int64_t passes);
};

/// Names of the instruction sets that this CPU can run, best first, "portable" last.
std::vector<std::string> kernel_targets();
/// "" for the best. nullptr for an unknown name.
const Kernels* find_kernels(std::string_view target);

}  // namespace lily::cpu
