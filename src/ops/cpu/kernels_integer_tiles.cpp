// Linear maps with integer products for many rows of activations (prefill). As many weight rows as a vector has 32-bit
// lanes make a tile: their codes are transposed into words of eight codes, lane = row, and multiplied with activations
// that are the same for all lanes, so that no sum goes across lanes. The equation is in kernels_integer_rows.cpp.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/kernels_integer_tiles.cpp"  // NOLINT
#include <algorithm>
#include <cstring>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "ops/cpu/integer-inl.h"
#include "ops/cpu/kernel_tables.h"
#include "ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lily::cpu::HWY_NAMESPACE {
namespace {

#if LILY_INTEGER_SIMD

constexpr std::int64_t kTileRows = HWY_LANES(std::uint32_t);
static_assert(kTileRows <= kMaxTileRows);

// 16 bytes of every fourth row, one row to each 128-bit block.
HWY_INLINE WordVector gather_blocks(const std::uint8_t* from, std::int64_t stride) {
  const WordTag d;
  const hn::Repartition<std::uint8_t, hn::Full128<std::uint32_t>> bytes;
  const hn::Full128<std::uint32_t> block;
  const auto load = [&](std::int64_t row)
                        HWY_ATTR { return hn::BitCast(block, hn::LoadU(bytes, from + row * stride)); };
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  const hn::Half<WordTag> half;
  return hn::Combine(d, hn::Combine(half, load(12), load(8)), hn::Combine(half, load(4), load(0)));
#elif HWY_TARGET == HWY_AVX2
  return hn::Combine(d, load(4), load(0));
#else
  (void)d;
  return load(0);
#endif
}

// to[word][row] = word `word` of row `row`, for four words of kTileRows rows.
HWY_INLINE void transpose_four(const std::uint8_t* from, std::int64_t stride, std::uint32_t* to) {
  const WordTag d;
  const hn::Repartition<std::uint64_t, WordTag> dq;
  const WordVector r0 = gather_blocks(from, stride);
  const WordVector r1 = gather_blocks(from + stride, stride);
  const WordVector r2 = gather_blocks(from + 2 * stride, stride);
  const WordVector r3 = gather_blocks(from + 3 * stride, stride);
  const auto low01 = hn::BitCast(dq, hn::InterleaveLower(d, r0, r1));
  const auto low23 = hn::BitCast(dq, hn::InterleaveLower(d, r2, r3));
  const auto high01 = hn::BitCast(dq, hn::InterleaveUpper(d, r0, r1));
  const auto high23 = hn::BitCast(dq, hn::InterleaveUpper(d, r2, r3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dq, low01, low23)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dq, low01, low23)), d, to + kTileRows);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(dq, high01, high23)), d, to + 2 * kTileRows);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(dq, high01, high23)), d, to + 3 * kTileRows);
}

// to[word][row] for rows of `bytes` bytes; `to` has room for whole blocks of four words.
void transpose(const std::uint8_t* from, std::int64_t bytes, std::uint32_t* to) {
  std::int64_t at = 0;
  for (; at + 16 <= bytes; at += 16) {
    if (at % 64 == 0) {  // the next tile on its way to the second-level cache; the first is full with this one
      for (std::int64_t row = kTileRows; row < 2 * kTileRows; ++row) __builtin_prefetch(from + row * bytes + at, 0, 2);
    }
    transpose_four(from + at, bytes, to + at / 4 * kTileRows);
  }
  if (at < bytes) {
    std::uint8_t rest[kTileRows][16];
    for (std::int64_t row = 0; row < kTileRows; ++row) {
      std::memcpy(rest[row], from + row * bytes + at, static_cast<std::size_t>(bytes - at));
    }
    transpose_four(rest[0], 16, to + at / 4 * kTileRows);
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
  transpose(weight.codes + row * weight.row_bytes(), weight.row_bytes(), tile.codes);
  transpose(reinterpret_cast<const std::uint8_t*>(weight.scales + row * groups), 2 * groups, tile.scales);
  transpose(reinterpret_cast<const std::uint8_t*>(weight.biases + row * groups), 2 * groups, tile.biases);
  return tile;
}

// The even or odd bfloat16 of a pair of groups as float32.
HWY_INLINE FloatVector group_value(const std::uint32_t* pairs, std::int64_t group) {
  const WordTag d;
  const WordVector both = hn::LoadU(d, pairs + group / 2 * kTileRows);
  const WordVector bits = group % 2 == 0 ? hn::ShiftLeft<16>(both) : hn::And(both, hn::Set(d, 0xffff0000U));
  return hn::BitCast(FloatTag(), bits);
}

// The integer products of one group: one plane of kM records.
template <int kM>
HWY_INLINE void add_group(const std::uint32_t* codes, const std::uint8_t* const* records, std::int64_t offset,
                          SumVector* sums) {
  for (std::int64_t word = 0; word < 8; ++word) {
    const ByteVector both = hn::BitCast(ByteTag(), hn::LoadU(WordTag(), codes + word * kTileRows));
    const ByteVector even = low_halves(both);
    const ByteVector odd = high_halves(both);
    for (int j = 0; j < kM; ++j) sums[j] = dot4_same(sums[j], even, records[j] + offset + 4 * word);
    for (int j = 0; j < kM; ++j) sums[j] = dot4_same(sums[j], odd, records[j] + offset + kOddOffset + 4 * word);
  }
}

// kM records times one tile.
template <int kM, int kPlanes>
HWY_INLINE void tile_products(const Tile& tile, const IntegerCall& call, std::int64_t m, std::int64_t column) {
  const FloatTag d;
  const RecordLayout& layout = call.layout;
  const std::uint8_t* records[kM];
  FloatVector total[kM];
  for (int j = 0; j < kM; ++j) {
    records[j] = record_of(call, m + j);
    total[j] = hn::Zero(d);
  }
  for (std::int64_t g = 0; g < layout.groups(); ++g) {
    SumVector sums[kM];
    for (int j = 0; j < kM; ++j) sums[j] = hn::Zero(SumTag());
    const std::uint32_t* codes = tile.codes + g * 8 * kTileRows;
    add_group<kM>(codes, records, even_offset(g), sums);
    if (kPlanes == 2) {
      for (int j = 0; j < kM; ++j) sums[j] = hn::ShiftLeft<8>(sums[j]);
      add_group<kM>(codes, records, even_offset(g) + layout.low_offset(), sums);
    }
    const FloatVector scale = group_value(tile.scales, g);
    const FloatVector bias = group_value(tile.biases, g);
    for (int j = 0; j < kM; ++j) {
      const FloatVector factor = hn::Mul(scale, hn::Set(d, record_scales(layout, records[j])[g]));
      total[j] = hn::MulAdd(hn::ConvertTo(d, sums[j]), factor, total[j]);
      total[j] = hn::MulAdd(bias, hn::Set(d, record_sums(layout, records[j])[g]), total[j]);
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
  for (std::int64_t row = 0; row < call.rows; row += kTileRows) {
    const Tile tile = make_tile(call, call.begin + row);
    std::int64_t m = 0;
    for (; m + kMost <= call.m; m += kMost) tile_products<kMost, kPlanes>(tile, call, m, row);
    if (kMost > 8 && m + 8 <= call.m) {
      tile_products<8, kPlanes>(tile, call, m, row);
      m += 8;
    }
    for (; m + 4 <= call.m; m += 4) tile_products<4, kPlanes>(tile, call, m, row);
    for (; m + 2 <= call.m; m += 2) tile_products<2, kPlanes>(tile, call, m, row);
    for (; m < call.m; ++m) tile_products<1, kPlanes>(tile, call, m, row);
  }
}

void integer_tiles(const IntegerCall& call) {
  call.layout.planes == 2 ? tiles<2>(call) : tiles<1>(call);
}

void fill(Kernels& kernels) {
  kernels.tile_rows = kTileRows;
  kernels.integer_tiles = integer_tiles;
}

#else

void fill(Kernels& kernels) {
  kernels.tile_rows = 0;
}

#endif

}  // namespace
}  // namespace lily::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lily::cpu {
HWY_EXPORT(fill);
void LILY_FILL(integer_tile_kernels)(Kernels& kernels) {
  HWY_DYNAMIC_DISPATCH(fill)(kernels);
}
}  // namespace lily::cpu
#endif
