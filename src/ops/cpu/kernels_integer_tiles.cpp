// Linear maps with integer products for many rows of activations (prefill). As many weight rows as a vector has 32-bit
// lanes make a tile: their codes are transposed into words of eight codes, lane = row, and multiplied with activations
// that are the same for all lanes, so that no sum goes across lanes. The equation is in kernels_integer_rows.cpp.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/kernels_integer_tiles.cpp"  // NOLINT
#include <array>
#include <cstring>
#include <utility>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "ops/cpu/integer-inl.h"
#include "ops/cpu/kernel_tables.h"
#include "ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lily::cpu::HWY_NAMESPACE {
namespace {

#if LILY_INTEGER_SIMD

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

// The integer products of one group: one plane of kM records. Few records have two sums each, since a dot product waits
// for the one before it.
template <int kM>
HWY_INLINE void add_group(const std::uint32_t* codes, const std::uint8_t* const* records, std::int64_t offset,
                          SumVector* sums) {
  constexpr bool kTwo = kM < 4;
  SumVector more[kM];
  if constexpr (kTwo) {
    for (int j = 0; j < kM; ++j) more[j] = hn::Zero(SumTag());
  }
#pragma GCC unroll 8
  for (std::int64_t word = 0; word < 8; ++word) {
    const ByteVector both = hn::BitCast(ByteTag(), hn::LoadU(WordTag(), codes + word * kTileRows));
    const ByteVector even = low_halves(both);
    const ByteVector odd = high_halves(both);
    for (int j = 0; j < kM; ++j) sums[j] = dot4_same(sums[j], even, records[j] + offset + 4 * word);
    if constexpr (kTwo) {
      for (int j = 0; j < kM; ++j) more[j] = dot4_same(more[j], odd, records[j] + offset + kOddOffset + 4 * word);
    } else {
      for (int j = 0; j < kM; ++j) sums[j] = dot4_same(sums[j], odd, records[j] + offset + kOddOffset + 4 * word);
    }
  }
  if constexpr (kTwo) {
    for (int j = 0; j < kM; ++j) sums[j] = hn::Add(sums[j], more[j]);
  }
}

// kM records times one tile, in integer-inl.h's order of sums.
template <int kM, int kPlanes>
void tile_products(const Tile& tile, const IntegerCall& call, std::int64_t m, std::int64_t column) {
  const FloatTag d;
  const RecordLayout& layout = call.layout;
  const std::uint8_t* records[kM];
  FloatVector total[kM];
  for (int j = 0; j < kM; ++j) {
    records[j] = record_of(call, m + j);
    total[j] = hn::Zero(d);
  }
  for (std::int64_t g = 0; g < layout.groups(); ++g) {
    const FloatVector bias = group_value(tile.biases, g);
    for (int j = 0; j < kM; ++j) total[j] = hn::MulAdd(bias, hn::Set(d, record_sums(layout, records[j])[g]), total[j]);
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
    for (int j = 0; j < kM; ++j) {
      const FloatVector factor = hn::Mul(scale, hn::Set(d, record_scales(layout, records[j])[g]));
      total[j] = hn::MulAdd(hn::ConvertTo(d, sums[j]), factor, total[j]);
    }
  }
  for (int j = 0; j < kM; ++j) {
    float* out = call.out + (m + j) * call.out_stride + column;
    hn::StoreU(call.add ? hn::Add(total[j], hn::LoadU(d, out)) : total[j], d, out);
  }
}

// As many records at once as registers hold, in parts of about the same size: 13 are 7 and 6, not 12 and 1.
constexpr int kMostRecords = kTileRegisters == 16 ? 12 : 4;
using TileProducts = void (*)(const Tile& tile, const IntegerCall& call, std::int64_t m, std::int64_t column);
template <int kPlanes, int... kIndex>
constexpr std::array<TileProducts, kMostRecords> all_sizes(std::integer_sequence<int, kIndex...>) {
  return {tile_products<kIndex + 1, kPlanes>...};
}

template <int kPlanes>
void tiles(const IntegerCall& call) {
  constexpr auto kProducts = all_sizes<kPlanes>(std::make_integer_sequence<int, kMostRecords>());
  const std::int64_t parts = (call.m + kMostRecords - 1) / kMostRecords;
  for (std::int64_t row = 0; row < call.rows; row += kTileRows) {
    const Tile tile = make_tile(call, call.begin + row);
    std::int64_t m = 0;
    for (std::int64_t part = 0; part < parts; ++part) {
      const std::int64_t count = (call.m - m) / (parts - part);
      kProducts[static_cast<std::size_t>(count - 1)](tile, call, m, row);
      m += count;
    }
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
