// Linear maps with integer products: 4-bit codes where they lie in the checkpoint, activations in records.
//
//     sum_i w[i] x[i] = sum over groups of  scale_w * scale_x * sum_i code[i] q[i]  +  bias_w * sum_x
//
// Two forms. For few rows of activations, `row_products`: a row of codes is read once, front to back, and its partial
// sums lie along the row; memory speed is what counts. For many, `tiles`: as many weight rows as a vector has 32-bit
// lanes are transposed into words of eight codes, lane = row, and multiplied with broadcast activations.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/kernels_integer.cpp"  // NOLINT
#include <algorithm>
#include <cmath>
#include <cstring>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "ops/cpu/dot4-inl.h"
#include "ops/cpu/kernel_tables.h"
#include "ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lily::cpu::HWY_NAMESPACE {
namespace {

#if LILY_INTEGER_SIMD
constexpr std::int64_t kVectorBytes = HWY_LANES(std::uint8_t);
#else
constexpr std::int64_t kVectorBytes = 1;
#endif
// Groups whose even (then odd) values lie together in a record: those that one vector of codes holds.
constexpr std::int64_t kBlockGroups = kVectorBytes >= 64 ? 2 : 1;

// Offset in a plane of the even values of a group; the odd ones are kOddOffset further.
HWY_INLINE std::int64_t even_offset(std::int64_t group) {
  return group / kBlockGroups * (kBlockGroups * kRecordGroup) + group % kBlockGroups * 32;
}
constexpr std::int64_t kOddOffset = kBlockGroups * 32;

HWY_INLINE const float* record_scales(const RecordLayout& layout, const std::uint8_t* record) {
  return reinterpret_cast<const float*>(record + layout.scale_offset());
}
HWY_INLINE const float* record_sums(const RecordLayout& layout, const std::uint8_t* record) {
  return reinterpret_cast<const float*>(record + layout.sum_offset());
}

// ---- activations to records ----

HWY_INLINE float largest(const float* x) {
  float result = 0;
  for (int i = 0; i < kRecordGroup; ++i) result = std::max(result, std::abs(x[i]));
  return result;
}

void quantize_group(const float* x, std::int64_t group, const RecordLayout& layout, std::uint8_t* record) {
  const float limit = layout.planes == 2 ? 32639.0F : 127.0F;
  const float most = largest(x);
  const float scale = most / limit;
  const float inverse = most > 0 ? limit / most : 0.0F;
  std::int32_t q[kRecordGroup];
  std::int32_t sum = 0;
  for (int i = 0; i < kRecordGroup; ++i) {
    // Halves away from zero, without the current rounding mode; infinities stay in range.
    const float scaled = std::clamp(x[i] * inverse, -limit, limit);
    q[i] = static_cast<std::int32_t>(scaled + std::copysign(0.5F, scaled));
    sum += q[i];
  }
  std::uint8_t* high = record + even_offset(group);
  std::uint8_t* low = high + layout.low_offset();
  for (int i = 0; i < kRecordGroup / 2; ++i) {
    const std::int32_t even = q[2 * i];
    const std::int32_t odd = q[2 * i + 1];
    if (layout.planes == 2) {
      const std::int32_t even_high = (even + 128) >> 8;
      const std::int32_t odd_high = (odd + 128) >> 8;
      high[i] = static_cast<std::uint8_t>(even_high);
      high[i + kOddOffset] = static_cast<std::uint8_t>(odd_high);
      low[i] = static_cast<std::uint8_t>(even - even_high * 256);
      low[i + kOddOffset] = static_cast<std::uint8_t>(odd - odd_high * 256);
    } else {
      high[i] = static_cast<std::uint8_t>(even);
      high[i + kOddOffset] = static_cast<std::uint8_t>(odd);
    }
  }
  reinterpret_cast<float*>(record + layout.scale_offset())[group] = scale;
  reinterpret_cast<float*>(record + layout.sum_offset())[group] = scale * static_cast<float>(sum);
}

void quantize(const float* x, std::int64_t first_group, std::int64_t groups, const RecordLayout& layout,
              std::uint8_t* record) {
  for (std::int64_t g = 0; g < groups; ++g) quantize_group(x + g * kRecordGroup, first_group + g, layout, record);
}

// ---- few rows of activations ----

// Partial sums of groups' scale_w * scale_x (kept in `scales` for the integer sums) and of bias_w * sum_x.
template <class D>
HWY_INLINE hn::Vec<D> group_factors(D d, const BFloat16* scales, const BFloat16* biases, const float* x_scales,
                                    const float* x_sums, float* factors, hn::Vec<D> sum) {
  hn::StoreU(hn::Mul(load_bfloat16(d, scales), hn::LoadU(d, x_scales)), d, factors);
  return hn::MulAdd(load_bfloat16(d, biases), hn::LoadU(d, x_sums), sum);
}

// The bias's part of a row's dot product; factors[g] = scale_w * scale_x.
HWY_INLINE float bias_products(const BFloat16* scales, const BFloat16* biases, std::int64_t groups,
                               const float* x_scales, const float* x_sums, float* factors) {
  const FloatTag d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  FloatVector sum = hn::Zero(d);
  std::int64_t g = 0;
  for (; g + lanes <= groups; g += lanes) {
    sum = group_factors(d, scales + g, biases + g, x_scales + g, x_sums + g, factors + g, sum);
  }
  float total = sum_of(d, sum);
  for (; g < groups; ++g) {
    factors[g] = static_cast<float>(scales[g]) * x_scales[g];
    total += static_cast<float>(biases[g]) * x_sums[g];
  }
  return total;
}

#if LILY_INTEGER_SIMD

template <int kPlanes>
HWY_INLINE SumVector block_products(ByteVector even, ByteVector odd, const std::uint8_t* high,
                                    std::int64_t low_offset) {
  const ByteTag d;
  const auto x = [&](std::int64_t at) HWY_ATTR { return hn::LoadU(d, high + at); };
  SumVector sum = dot4(hn::Zero(SumTag()), even, x(0));
  sum = dot4(sum, odd, x(kOddOffset));
  if (kPlanes == 2) {
    SumVector low = dot4(hn::ShiftLeft<8>(sum), even, x(low_offset));
    sum = dot4(low, odd, x(low_offset + kOddOffset));
  }
  return sum;
}

// factors[g] in the lanes of group g's products.
HWY_INLINE FloatVector spread_factors(const float* factors) {
  const FloatTag d;
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  const hn::Half<FloatTag> half;
  return hn::Combine(d, hn::Set(half, factors[1]), hn::Set(half, factors[0]));
#else
  return hn::Set(d, factors[0]);
#endif
}

// One weight row times one record, without the bias's part.
template <int kPlanes>
HWY_INLINE FloatVector code_products(const std::uint8_t* codes, std::int64_t groups, const std::uint8_t* record,
                                     std::int64_t low_offset, const float* factors) {
  const FloatTag d;
  const ByteTag db;
  FloatVector sum = hn::Zero(d);
  std::int64_t g = 0;
  for (; g + kBlockGroups <= groups; g += kBlockGroups) {
    const FloatVector factor = spread_factors(factors + g);
    for (std::int64_t part = 0; part < kBlockGroups * 32; part += kVectorBytes) {
      const ByteVector c = hn::LoadU(db, codes + g * 32 + part);
      const SumVector product =
          block_products<kPlanes>(low_halves(c), high_halves(c), record + even_offset(g) + part, low_offset);
      sum = hn::MulAdd(hn::ConvertTo(d, product), factor, sum);
    }
  }
  if (g < groups) {  // half a block: the other half is zeros
    const hn::Half<ByteTag> half;
    const ByteVector c = hn::ZeroExtendVector(db, hn::LoadU(half, codes + g * 32));
    const SumVector product =
        block_products<kPlanes>(low_halves(c), high_halves(c), record + even_offset(g), low_offset);
    sum = hn::MulAdd(hn::ConvertTo(d, product), hn::Set(d, factors[g]), sum);
  }
  return sum;
}

template <int kPlanes>
HWY_INLINE float row_product(const IntegerCall& call, std::int64_t row, const std::uint8_t* record, float* factors) {
  const QuantRows& weight = *call.weight;
  const std::int64_t groups = weight.groups();
  const float bias = bias_products(weight.scales + row * groups, weight.biases + row * groups, groups,
                                   record_scales(call.layout, record), record_sums(call.layout, record), factors);
  return bias + sum_of(FloatTag(), code_products<kPlanes>(weight.codes + row * weight.row_bytes(), groups, record,
                                                          call.layout.low_offset(), factors));
}

#else

template <int kPlanes>
HWY_INLINE float row_product(const IntegerCall& call, std::int64_t row, const std::uint8_t* record, float* factors) {
  const QuantRows& weight = *call.weight;
  const std::int64_t groups = weight.groups();
  float sum = bias_products(weight.scales + row * groups, weight.biases + row * groups, groups,
                            record_scales(call.layout, record), record_sums(call.layout, record), factors);
  const std::uint8_t* codes = weight.codes + row * weight.row_bytes();
  const auto* high = reinterpret_cast<const std::int8_t*>(record);
  const std::int8_t* low = high + call.layout.low_offset();
  for (std::int64_t g = 0; g < groups; ++g) {
    std::int32_t products = 0;
    for (std::int64_t i = 0; i < 32; ++i) {
      const std::int64_t at = even_offset(g) + i;
      const std::int32_t even = codes[g * 32 + i] & 15;
      const std::int32_t odd = codes[g * 32 + i] >> 4;
      if (kPlanes == 2) {
        products += even * (high[at] * 256 + low[at]) + odd * (high[at + kOddOffset] * 256 + low[at + kOddOffset]);
      } else {
        products += even * high[at] + odd * high[at + kOddOffset];
      }
    }
    sum += static_cast<float>(products) * factors[g];
  }
  return sum;
}

#endif

HWY_INLINE const std::uint8_t* record_of(const IntegerCall& call, std::int64_t m) {
  return call.x + (call.index ? call.index[m] : m) * call.layout.bytes();
}

template <int kPlanes>
void row_products(const IntegerCall& call) {
  auto* factors = reinterpret_cast<float*>(call.scratch);
  for (std::int64_t row = 0; row < call.rows; ++row) {
    for (std::int64_t m = 0; m < call.m; ++m) {
      float* out = call.out + m * call.out_stride + row;
      const float value = row_product<kPlanes>(call, call.begin + row, record_of(call, m), factors);
      *out = call.add ? *out + value : value;
    }
  }
}

// ---- many rows of activations ----

#if LILY_INTEGER_SIMD

constexpr std::int64_t kTileRows = HWY_LANES(std::uint32_t);
static_assert(kTileRows <= kMaxTileRows);

// to[word][row] = word `word` of row `row`, for kTileRows rows of `bytes` bytes. A vector takes 16 bytes of every
// fourth row; transposing four such vectors inside their 128-bit blocks brings the rows into order.
void transpose(const std::uint8_t* from, std::int64_t stride, std::int64_t bytes, std::uint32_t* to) {
  const WordTag d;
  const hn::Repartition<std::uint64_t, WordTag> dq;
  alignas(64) std::uint32_t gathered[4][kTileRows];
  for (std::int64_t at = 0; at < bytes; at += 16) {
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(16, bytes - at));
    for (std::int64_t row = 0; row < kTileRows; ++row) {
      std::memcpy(&gathered[row % 4][row / 4 * 4], from + row * stride + at, count);
    }
    const WordVector r0 = hn::Load(d, gathered[0]);
    const WordVector r1 = hn::Load(d, gathered[1]);
    const WordVector r2 = hn::Load(d, gathered[2]);
    const WordVector r3 = hn::Load(d, gathered[3]);
    const auto low01 = hn::BitCast(dq, hn::InterleaveLower(d, r0, r1));
    const auto low23 = hn::BitCast(dq, hn::InterleaveLower(d, r2, r3));
    const auto high01 = hn::BitCast(dq, hn::InterleaveUpper(d, r0, r1));
    const auto high23 = hn::BitCast(dq, hn::InterleaveUpper(d, r2, r3));
    std::uint32_t* words = to + at / 4 * kTileRows;
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dq, low01, low23)), d, words);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dq, low01, low23)), d, words + kTileRows);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dq, high01, high23)), d, words + 2 * kTileRows);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dq, high01, high23)), d, words + 3 * kTileRows);
  }
}

// A tile in scratch: codes [in / 8][kTileRows] words, then pairs of scales and of biases [groups / 2][kTileRows] words.
struct Tile {
  std::uint32_t* codes;
  std::uint32_t* scales;
  std::uint32_t* biases;
};

Tile make_tile(const IntegerCall& call, std::int64_t row) {
  const QuantRows& weight = *call.weight;
  const std::int64_t groups = weight.groups();
  Tile tile{};
  tile.codes = reinterpret_cast<std::uint32_t*>(call.scratch);
  tile.scales = tile.codes + weight.in / 8 * kTileRows;
  tile.biases = tile.scales + (groups + 7) / 8 * 4 * kTileRows;
  transpose(weight.codes + row * weight.row_bytes(), weight.row_bytes(), weight.row_bytes(), tile.codes);
  const auto bytes_of = [](const BFloat16* values) { return reinterpret_cast<const std::uint8_t*>(values); };
  transpose(bytes_of(weight.scales + row * groups), 2 * groups, 2 * groups, tile.scales);
  transpose(bytes_of(weight.biases + row * groups), 2 * groups, 2 * groups, tile.biases);
  return tile;
}

// The even or odd bfloat16 of a group pair as float32.
HWY_INLINE FloatVector group_value(const std::uint32_t* pairs, std::int64_t group) {
  const WordTag d;
  const WordVector both = hn::LoadU(d, pairs + group / 2 * kTileRows);
  const WordVector bits = group % 2 == 0 ? hn::ShiftLeft<16>(both) : hn::And(both, hn::Set(d, 0xffff0000U));
  return hn::BitCast(FloatTag(), bits);
}

// kM records times one tile.
template <int kM, int kPlanes>
HWY_INLINE void tile_products(const Tile& tile, const IntegerCall& call, std::int64_t m, std::int64_t column) {
  const FloatTag d;
  const ByteTag db;
  const RecordLayout& layout = call.layout;
  const std::int64_t groups = layout.groups();
  const std::uint8_t* record[kM];
  FloatVector total[kM];
  for (int j = 0; j < kM; ++j) {
    record[j] = record_of(call, m + j);
    total[j] = hn::Zero(d);
  }
  for (std::int64_t g = 0; g < groups; ++g) {
    SumVector sums[kM];
    for (int j = 0; j < kM; ++j) sums[j] = hn::Zero(SumTag());
    for (int plane = 0; plane < kPlanes; ++plane) {
      const std::int64_t offset = even_offset(g) + plane * layout.low_offset();
      if (plane == 1) {
        for (int j = 0; j < kM; ++j) sums[j] = hn::ShiftLeft<8>(sums[j]);
      }
      for (std::int64_t word = 0; word < 8; ++word) {
        const ByteVector codes = hn::BitCast(db, hn::LoadU(WordTag(), tile.codes + (g * 8 + word) * kTileRows));
        const ByteVector even = low_halves(codes);
        const ByteVector odd = high_halves(codes);
        for (int j = 0; j < kM; ++j) sums[j] = dot4_same(sums[j], even, record[j] + offset + 4 * word);
        for (int j = 0; j < kM; ++j) {
          sums[j] = dot4_same(sums[j], odd, record[j] + offset + kOddOffset + 4 * word);
        }
      }
    }
    const FloatVector scale = group_value(tile.scales, g);
    const FloatVector bias = group_value(tile.biases, g);
    for (int j = 0; j < kM; ++j) {
      const FloatVector factor = hn::Mul(scale, hn::Set(d, record_scales(layout, record[j])[g]));
      total[j] = hn::MulAdd(hn::ConvertTo(d, sums[j]), factor, total[j]);
      total[j] = hn::MulAdd(bias, hn::Set(d, record_sums(layout, record[j])[g]), total[j]);
    }
  }
  for (int j = 0; j < kM; ++j) {
    float* out = call.out + (m + j) * call.out_stride + column;
    hn::StoreU(call.add ? hn::Add(total[j], hn::LoadU(d, out)) : total[j], d, out);
  }
}

template <int kPlanes>
void tiles(const IntegerCall& call) {
  constexpr int kMost = kTileRegisters == 16 ? 12 : 4;
  std::int64_t row = 0;
  for (; row + kTileRows <= call.rows; row += kTileRows) {
    const Tile tile = make_tile(call, call.begin + row);
    std::int64_t m = 0;
    for (; m + kMost <= call.m; m += kMost) tile_products<kMost, kPlanes>(tile, call, m, row);
    if (m + 8 <= call.m && kMost > 8) {
      tile_products<8, kPlanes>(tile, call, m, row);
      m += 8;
    }
    for (; m + 4 <= call.m; m += 4) tile_products<4, kPlanes>(tile, call, m, row);
    for (; m + 2 <= call.m; m += 2) tile_products<2, kPlanes>(tile, call, m, row);
    for (; m < call.m; ++m) tile_products<1, kPlanes>(tile, call, m, row);
  }
  if (row < call.rows) {
    IntegerCall rest = call;
    rest.begin += row;
    rest.rows -= row;
    rest.out += row;
    row_products<kPlanes>(rest);
  }
}

constexpr std::int64_t kTilesFromRows = 3;

#else

template <int kPlanes>
void tiles(const IntegerCall& call) {
  row_products<kPlanes>(call);
}
constexpr std::int64_t kTilesFromRows = 1;

#endif

void integer(const IntegerCall& call) {
  const bool many = call.m >= kTilesFromRows;
  if (call.layout.planes == 2) {
    many ? tiles<2>(call) : row_products<2>(call);
  } else {
    many ? tiles<1>(call) : row_products<1>(call);
  }
}

void fill(Kernels& kernels) {
  kernels.quantize = quantize;
  kernels.integer = integer;
}

}  // namespace
}  // namespace lily::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lily::cpu {
HWY_EXPORT(fill);
void fill_integer_kernels(Kernels& kernels) {
  HWY_DYNAMIC_DISPATCH(fill)(kernels);
}
}  // namespace lily::cpu
#endif
