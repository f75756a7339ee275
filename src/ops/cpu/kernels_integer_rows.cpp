// Linear maps with integer products for few rows of activations (decode): each row of codes is read once, front to
// back, where it lies in the checkpoint, and its partial sums lie along the row. Memory speed is what counts.
//
//     sum_i w[i] x[i] = sum over groups of  scale_w * scale_x * sum_i code[i] q[i]  +  bias_w * sum_x
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/kernels_integer_rows.cpp"  // NOLINT
#include "hwy/foreach_target.h"                                // IWYU pragma: keep
#include "ops/cpu/integer-inl.h"
#include "ops/cpu/kernel_tables.h"
#include "ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lily::cpu::HWY_NAMESPACE {
namespace {

#if LILY_INTEGER_SIMD

// Codes are asked for so far ahead, in the order of addresses, into the second-level cache. Measured here with codes
// that come from memory: 4 KB into the first level was up to a half slower, 8 or 32 KB no better (docs/cpu.md).
constexpr std::int64_t kAheadBytes = 16384 + 64;

// Rows that share the loads of the record, and the vectors of codes a row whose partial products are summed together.
constexpr std::int64_t kSetRows = kVectorBytes >= 64 ? 2 : 1;
constexpr std::int64_t kSetVectors = kVectorBytes >= 32 ? 8 / kSetRows : 4;
constexpr std::int64_t kSetGroups = kSetVectors * kBlockGroups;
static_assert(kTileRows % kSetRows == 0);

// The even and odd values of one vector of codes, all planes.
template <int kPlanes>
struct Values {
  Values(const std::uint8_t* at, std::int64_t low_offset) {
    const ByteTag d;
    for (int p = 0; p < kPlanes; ++p) {
      even[p] = hn::LoadU(d, at + p * low_offset);
      odd[p] = hn::LoadU(d, at + p * low_offset + kOddOffset);
    }
  }
  HWY_INLINE SumVector products(ByteVector codes) const {
    const ByteVector low = low_halves(codes);
    const ByteVector high = high_halves(codes);
    SumVector sum = dot4(dot4(hn::Zero(SumTag()), low, even[0]), high, odd[0]);
    if (kPlanes == 2) sum = dot4(dot4(hn::ShiftLeft<8>(sum), low, even[kPlanes - 1]), high, odd[kPlanes - 1]);
    return sum;
  }
  ByteVector even[kPlanes], odd[kPlanes];
};

// Sums over the lanes of each 128-bit block: lane n of a block is that of v[n]'s block.
HWY_INLINE SumVector block_sums(const SumVector* v) {
  const SumTag d;
  const hn::Repartition<std::int64_t, SumTag> dd;
  const auto a = hn::BitCast(dd, hn::Add(hn::InterleaveLower(d, v[0], v[1]), hn::InterleaveUpper(d, v[0], v[1])));
  const auto b = hn::BitCast(dd, hn::Add(hn::InterleaveLower(d, v[2], v[3]), hn::InterleaveUpper(d, v[2], v[3])));
  return hn::Add(hn::BitCast(d, hn::InterleaveLower(dd, a, b)), hn::BitCast(d, hn::InterleaveUpper(dd, a, b)));
}

// v[r * kSetVectors + i]: row r, the groups that vector i of codes holds. Gives the products of kSetGroups groups of
// the first row, then of the next.
HWY_INLINE FloatVector group_products(const SumVector* v) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  const __m512i first = block_sums(v).raw;
  const __m512i second = block_sums(v + 4).raw;
  const __m512i sums = _mm512_add_epi32(_mm512_shuffle_i32x4(first, second, 0x88),   // blocks 0 and 2 of both
                                        _mm512_shuffle_i32x4(first, second, 0xdd));  // blocks 1 and 3
  const __m512i order = _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15);
  return hn::ConvertTo(FloatTag(), SumVector{_mm512_permutexvar_epi32(order, sums)});
#elif HWY_TARGET == HWY_AVX2
  const SumTag d;
  const SumVector first = block_sums(v);
  const SumVector second = block_sums(v + 4);
  return hn::ConvertTo(FloatTag(),
                       hn::Add(hn::ConcatLowerLower(d, second, first), hn::ConcatUpperUpper(d, second, first)));
#else
  return hn::ConvertTo(FloatTag(), block_sums(v));
#endif
}

// A vector of codes that may end after its first half, which is then followed by zeros.
HWY_INLINE ByteVector load_codes(const std::uint8_t* from, std::int64_t bytes) {
  const ByteTag d;
  if (bytes >= kVectorBytes) return hn::LoadU(d, from);
  if (bytes <= 0) return hn::Zero(d);
  const hn::Half<ByteTag> half;
  return hn::ZeroExtendVector(d, hn::LoadU(half, from));
}

// The products of the groups [group, group + kSetGroups) of kSetRows rows of codes with one record, to products[r][g].
// kWhole: all these groups are there; else the rest are zeros.
template <int kPlanes, bool kWhole>
HWY_INLINE void set_products(const std::uint8_t* const* codes, const RecordLayout& layout, const std::uint8_t* record,
                             std::int64_t group, const std::uint8_t* ahead, float* const* products) {
  constexpr std::int64_t kParts = kVectorBytes >= 32 ? 1 : 32 / kVectorBytes;  // vectors a group
  const std::int64_t bytes = (layout.groups() - group) * 32;
  SumVector sums[kSetRows * kSetVectors];
#pragma GCC unroll 8
  for (std::int64_t i = 0; i < kSetVectors; ++i) {
    for (std::int64_t part = 0; part < kParts; ++part) {
      const std::int64_t at = i * kBlockGroups * 32 + part * kVectorBytes;
      if (!kWhole && at >= bytes) {
        for (int r = 0; r < kSetRows; ++r) sums[r * kSetVectors + i] = hn::Zero(SumTag());
        break;
      }
      const Values<kPlanes> x(record + even_offset(group + i * kBlockGroups) + part * kVectorBytes,
                              layout.low_offset());
      for (int r = 0; r < kSetRows; ++r) {
        if (kWhole) __builtin_prefetch(ahead + ((i * kParts + part) * kSetRows + r) * kVectorBytes, 0, 2);
        const std::uint8_t* from = codes[r] + group * 32 + at;
        const ByteVector c = kWhole ? hn::LoadU(ByteTag(), from) : load_codes(from, bytes - at);
        SumVector& sum = sums[r * kSetVectors + i];
        sum = part == 0 ? x.products(c) : hn::Add(sum, x.products(c));
      }
    }
  }
  const FloatVector all = group_products(sums);
  if constexpr (kSetRows == 2) {
    const hn::Half<FloatTag> half;
    hn::StoreU(hn::LowerHalf(half, all), half, products[0] + group);
    hn::StoreU(hn::UpperHalf(half, all), half, products[kSetRows - 1] + group);
  } else {
    hn::StoreU(all, FloatTag(), products[0] + group);
  }
}

// Groups as they are kept in a tile's scratch: whole sets, and whole words of pairs.
HWY_INLINE std::int64_t padded_groups(std::int64_t groups) {
  return (groups + 7) / 8 * 8;
}

// A tile in scratch: products [padded groups][kTileRows] as the rows give them, then transposed; pairs of scales and of
// biases [padded groups / 2][kTileRows] words.
struct RowTile {
  RowTile(std::uint8_t* scratch, std::int64_t groups)
      : rows(reinterpret_cast<float*>(scratch)),
        columns(rows + padded_groups(groups) * kTileRows),
        scales(reinterpret_cast<std::uint32_t*>(columns + padded_groups(groups) * kTileRows)),
        biases(scales + padded_groups(groups) / 2 * kTileRows) {}
  float* rows;
  float* columns;
  std::uint32_t* scales;
  std::uint32_t* biases;
};

// Scales or biases of `count` rows, [rows][groups] to pairs [groups / 2][kTileRows]; what is beyond them does not
// count.
HWY_INLINE void transpose_groups(const BFloat16* from, std::int64_t groups, std::int64_t count, std::uint8_t* spare,
                                 std::uint32_t* to) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(from);
  if (count < kTileRows) {
    std::memcpy(spare, bytes, static_cast<std::size_t>(2 * groups * count));
    bytes = spare;
  }
  transpose<2>(bytes, 2 * groups, to);
}

// The products of `count` rows of codes, row after row.
template <int kPlanes>
HWY_INLINE void tile_row_products(const std::uint8_t* codes, std::int64_t count, const RecordLayout& layout,
                                  const std::uint8_t* record, float* products) {
  const std::int64_t groups = layout.groups();
  for (std::int64_t r = 0; r < count; r += kSetRows) {
    const std::uint8_t* from[kSetRows];
    float* to[kSetRows];
    for (std::int64_t i = 0; i < kSetRows; ++i) {
      const std::int64_t row = HWY_MIN(r + i, count - 1);  // the last one again beyond the end
      from[i] = codes + row * groups * 32;
      to[i] = products + row * padded_groups(groups);
    }
    std::int64_t g = 0;
    for (; g + kSetGroups <= groups; g += kSetGroups) {
      set_products<kPlanes, true>(from, layout, record, g, from[0] + kAheadBytes + g * 32 * kSetRows, to);
    }
    if (g < groups) set_products<kPlanes, false>(from, layout, record, g, nullptr, to);
  }
}

template <int kPlanes>
void tile_products(const IntegerCall& call) {
  const FloatTag d;
  const QuantRows& weight = *call.weight;
  const std::int64_t groups = weight.groups();
  const RowTile tile(call.scratch, groups);
  auto* spare = reinterpret_cast<std::uint8_t*>(tile.rows);
  for (std::int64_t row = 0; row < call.rows; row += kTileRows) {
    const std::int64_t count = HWY_MIN(kTileRows, call.rows - row);
    const std::int64_t first = call.begin + row;
    transpose_groups(weight.biases + first * groups, groups, count, spare, tile.biases);
    transpose_groups(weight.scales + first * groups, groups, count, spare, tile.scales);
    for (std::int64_t m = 0; m < call.m; ++m) {
      const std::uint8_t* record = record_of(call, m);
      const float* x_sums = record_sums(call.layout, record);
      const float* x_scales = record_scales(call.layout, record);
      FloatVector total = hn::Zero(d);
      for (std::int64_t g = 0; g < groups; ++g) {
        total = hn::MulAdd(group_value(tile.biases, g), hn::Set(d, x_sums[g]), total);
      }
      tile_row_products<kPlanes>(weight.codes + first * weight.row_bytes(), count, call.layout, record, tile.rows);
      transpose<0>(reinterpret_cast<const std::uint8_t*>(tile.rows), 4 * padded_groups(groups),
                   reinterpret_cast<std::uint32_t*>(tile.columns));
      for (std::int64_t g = 0; g < groups; ++g) {
        const FloatVector factor = hn::Mul(group_value(tile.scales, g), hn::Set(d, x_scales[g]));
        total = hn::MulAdd(hn::LoadU(d, tile.columns + g * kTileRows), factor, total);
      }
      float* out = call.out + m * call.out_stride + row;
      if (count == kTileRows) {
        hn::StoreU(call.add ? hn::Add(total, hn::LoadU(d, out)) : total, d, out);
      } else {
        float results[kTileRows];
        hn::StoreU(total, d, results);
        for (std::int64_t r = 0; r < count; ++r) out[r] = call.add ? results[r] + out[r] : results[r];
      }
    }
  }
}

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3

// ---- long rows, 8-bit activations: sets of four rows, lane = row in 128-bit vectors ----
//
// Little is written and few loads stand in the inner loop, each with the same step every time. Measured: only then does
// the hardware read ahead of what is asked for here; with the loop unrolled four times codes of 2,048 values a row come
// from memory at less than half the speed. While a set is multiplied, the biases of the next are summed.

constexpr std::int64_t kLongRows = 4;
constexpr std::int64_t kLongGroups = 16;  // lanes of float32
static_assert(kTileRows % kLongRows == 0);

using FourTag = hn::Full128<float>;
using FourVector = hn::Vec<FourTag>;

// Four rows of the weights times one record.
struct LongSet {
  std::int64_t row;  // of the matrix
  const std::uint8_t* record;
  float* factors;  // scale_w * scale_x, then the biases
  float* out;
};

// Where the four rows' values of group g lie: 16 groups are transposed inside 128-bit blocks.
HWY_INLINE std::int64_t four_at(std::int64_t g) {
  return g / kLongGroups * (kLongRows * kLongGroups) + g % 4 * kLongGroups + g % kLongGroups / 4 * 4;
}

// Four rows of 16 groups to where four_at says.
HWY_INLINE void transpose_blocks(const FloatVector* v, float* to) {
  const FloatTag d;
  const hn::Repartition<double, FloatTag> dd;
  const auto low01 = hn::BitCast(dd, hn::InterleaveLower(d, v[0], v[1]));
  const auto low23 = hn::BitCast(dd, hn::InterleaveLower(d, v[2], v[3]));
  const auto high01 = hn::BitCast(dd, hn::InterleaveUpper(d, v[0], v[1]));
  const auto high23 = hn::BitCast(dd, hn::InterleaveUpper(d, v[2], v[3]));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, low01, low23)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, low01, low23)), d, to + kLongGroups);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dd, high01, high23)), d, to + 2 * kLongGroups);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dd, high01, high23)), d, to + 3 * kLongGroups);
}

HWY_INLINE void prepare(const IntegerCall& call, const LongSet& set) {
  const FloatTag d;
  const QuantRows& weight = *call.weight;
  const std::int64_t groups = weight.groups();
  const float* x_scales = record_scales(call.layout, set.record);
  float* to = set.factors;
  for (std::int64_t g = 0; g < groups; g += kLongGroups) {
    const FloatVector x_scale = hn::LoadU(d, x_scales + g);
    FloatVector scales[kLongRows], biases[kLongRows];
    for (std::int64_t r = 0; r < kLongRows; ++r) {
      const std::int64_t at = (set.row + r) * groups + g;
      scales[r] = hn::Mul(load_bfloat16(d, weight.scales + at), x_scale);
      biases[r] = load_bfloat16(d, weight.biases + at);
    }
    transpose_blocks(scales, to + kLongRows * g);
    transpose_blocks(biases, to + kLongRows * (groups + g));
  }
}

// block_sums of one plane: what two lanes sum to fits 16 bits.
HWY_INLINE SumVector narrow_block_sums(const SumVector* v) {
  const __m512i ones = _mm512_set1_epi16(1);
  const __m512i a = _mm512_madd_epi16(_mm512_packs_epi32(v[0].raw, v[1].raw), ones);
  const __m512i b = _mm512_madd_epi16(_mm512_packs_epi32(v[2].raw, v[3].raw), ones);
  return SumVector{_mm512_madd_epi16(_mm512_packs_epi32(a, b), ones)};
}

// Adds the products of a set to `total`, which begins with those of its biases; gives the products of the next set's
// biases. kFar: codes 16 KB ahead, and the scales and biases of four sets ahead, are asked for into the second-level
// cache, which suits rows of 2 KB; else the next set's codes into the first.
template <bool kFar>
HWY_INLINE FourVector set_sums(const IntegerCall& call, const LongSet& set, const LongSet& next, FourVector& total) {
  const FourTag d4;
  const std::int64_t groups = call.weight->groups();
  const std::int64_t stride = call.weight->row_bytes();
  const std::uint8_t* codes = call.weight->codes + set.row * stride;
  const std::uint8_t* ahead = codes + (kFar ? 16384 : kLongRows * stride);
  const BFloat16* scales_ahead = call.weight->scales + (set.row + 4 * kLongRows) * groups;
  const BFloat16* biases_ahead = call.weight->biases + (set.row + 4 * kLongRows) * groups;
  const float* biases = next.factors + kLongRows * groups;
  const float* x_sums = record_sums(call.layout, next.record);
  FourVector next_total = hn::Zero(d4);
#pragma GCC unroll 1
  for (std::int64_t g = 0; g < groups; g += kBlockGroups) {
    const Values<1> x(set.record + even_offset(g), call.layout.low_offset());
    SumVector sums[kLongRows];
    for (std::int64_t r = 0; r < kLongRows; ++r) {
      // In the order of addresses, which is not that of use: so the hardware sees one stream.
      __builtin_prefetch(ahead + g * 32 * kLongRows + r * kVectorBytes, 0, kFar ? 2 : 3);
      sums[r] = x.products(hn::LoadU(ByteTag(), codes + r * stride + g * 32));
    }
    if (kFar && g % 8 == 0) {  // 64 bytes each
      __builtin_prefetch(scales_ahead + kLongRows * g, 0, 2);
      __builtin_prefetch(biases_ahead + kLongRows * g, 0, 2);
    }
    const __m512i blocks = narrow_block_sums(sums).raw;
    const __m512 both = _mm512_cvtepi32_ps(_mm512_add_epi32(blocks, _mm512_shuffle_i32x4(blocks, blocks, 0xb1)));
    const FourVector products[] = {FourVector{_mm512_castps512_ps128(both)},
                                   FourVector{_mm512_extractf32x4_ps(both, 2)}};
    for (std::int64_t i = 0; i < kBlockGroups; ++i) {
      const std::int64_t at = four_at(g + i);
      next_total = hn::MulAdd(hn::LoadU(d4, biases + at), hn::Set(d4, x_sums[g + i]), next_total);
      total = hn::MulAdd(products[i], hn::LoadU(d4, set.factors + at), total);
    }
  }
  return next_total;
}

// Whole sets of rows whose groups fill vectors.
template <bool kFar>
void long_products(const IntegerCall& call) {
  const FourTag d4;
  const std::int64_t groups = call.weight->groups();
  auto* scratch = reinterpret_cast<float*>(call.scratch);
  // Sets in order: all records of some rows, then the next rows.
  const auto set_at = [&](std::int64_t index) HWY_ATTR {
    const std::int64_t m = index % call.m;
    const std::int64_t row = index / call.m * kLongRows;
    return LongSet{.row = call.begin + row,
                   .record = record_of(call, m),
                   .factors = scratch + index % 2 * (2 * kLongRows * groups),
                   .out = call.out + m * call.out_stride + row};
  };
  const std::int64_t sets = call.rows / kLongRows * call.m;
  LongSet set = set_at(0);
  prepare(call, set);
  FourVector total = hn::Zero(d4);
  for (std::int64_t g = 0; g < groups; ++g) {
    const FourVector x_sum = hn::Set(d4, record_sums(call.layout, set.record)[g]);
    total = hn::MulAdd(hn::LoadU(d4, set.factors + kLongRows * groups + four_at(g)), x_sum, total);
  }
  for (std::int64_t i = 0; i < sets; ++i) {
    const LongSet next = i + 1 < sets ? set_at(i + 1) : set;
    if (i + 1 < sets) prepare(call, next);
    const FourVector next_total = set_sums<kFar>(call, set, next, total);
    hn::StoreU(call.add ? hn::Add(total, hn::LoadU(d4, set.out)) : total, d4, set.out);
    set = next;
    total = next_total;
  }
}

// Gives how many rows from the first on it has done. Rows of less than 2 KB gain only where no vector of codes lies in
// two lines.
std::int64_t long_row_products(const IntegerCall& call) {
  const QuantRows& weight = *call.weight;
  const bool far = weight.row_bytes() > 1024;
  const bool whole_lines = reinterpret_cast<std::uintptr_t>(weight.codes) % 64 == 0;
  if (call.layout.planes != 1 || weight.groups() < 2 * kLongGroups || weight.groups() % kLongGroups != 0) return 0;
  if (!far && !whole_lines) return 0;
  IntegerCall whole = call;
  whole.rows = call.rows / kLongRows * kLongRows;
  if (whole.rows * call.m == 0) return 0;
  far ? long_products<true>(whole) : long_products<false>(whole);
  return whole.rows;
}
#endif

template <int kPlanes>
void row_products(const IntegerCall& call) {
  IntegerCall rest = call;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  const std::int64_t done = long_row_products(call);
  rest.begin += done;
  rest.out += done;
  rest.rows -= done;
#endif
  tile_products<kPlanes>(rest);
}

#else

template <int kPlanes>
float row_product(const QuantRows& weight, std::int64_t row, const RecordLayout& layout, const std::uint8_t* record) {
  const std::uint8_t* codes = weight.codes + row * weight.row_bytes();
  const BFloat16* scales = weight.scales + row * weight.groups();
  const BFloat16* biases = weight.biases + row * weight.groups();
  float sum = 0;
  for (std::int64_t g = 0; g < weight.groups(); ++g) {
    sum += static_cast<float>(biases[g]) * record_sums(layout, record)[g];
  }
  for (std::int64_t g = 0; g < weight.groups(); ++g) {
    const auto* even = reinterpret_cast<const std::int8_t*>(record + even_offset(g));
    const std::int8_t* odd = even + kOddOffset;
    const std::int64_t low = layout.low_offset();
    std::int32_t products = 0;
    for (std::int64_t i = 0; i < 32; ++i) {
      const std::int32_t first = kPlanes == 2 ? even[i] * 256 + even[low + i] : even[i];
      const std::int32_t second = kPlanes == 2 ? odd[i] * 256 + odd[low + i] : odd[i];
      products += (codes[g * 32 + i] & 15) * first + (codes[g * 32 + i] >> 4) * second;
    }
    const float factor = static_cast<float>(scales[g]) * record_scales(layout, record)[g];
    sum += factor * static_cast<float>(products);
  }
  return sum;
}

template <int kPlanes>
void row_products(const IntegerCall& call) {
  for (std::int64_t row = 0; row < call.rows; ++row) {
    for (std::int64_t m = 0; m < call.m; ++m) {
      float* out = call.out + m * call.out_stride + row;
      const float value = row_product<kPlanes>(*call.weight, call.begin + row, call.layout, record_of(call, m));
      *out = call.add ? *out + value : value;
    }
  }
}

#endif

void integer_rows(const IntegerCall& call) {
  call.layout.planes == 2 ? row_products<2>(call) : row_products<1>(call);
}

void fill(Kernels& kernels) {
  kernels.integer_rows = integer_rows;
}

}  // namespace
}  // namespace lily::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lily::cpu {
HWY_EXPORT(fill);
void LILY_FILL(integer_row_kernels)(Kernels& kernels) {
  HWY_DYNAMIC_DISPATCH(fill)(kernels);
}
}  // namespace lily::cpu
#endif
