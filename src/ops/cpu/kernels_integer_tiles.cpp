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
#include "ops/cpu/upcoming.h"

HWY_BEFORE_NAMESPACE();
namespace lily::cpu::HWY_NAMESPACE {
namespace {

#if LILY_INTEGER_SIMD

#ifdef LILY_COMPILING_I8MM
// to[unit][row] = unit `unit` of row `row`, in units of 8 bytes, for rows of `bytes` bytes, a multiple of 16.
HWY_INLINE void transpose_codes(const std::uint8_t* from, std::int64_t bytes, std::uint32_t* to) {
  static_assert(kTileRows == 4);
  const hn::Repartition<std::uint64_t, WordTag> d;
  for (std::int64_t at = 0; at < bytes; at += 16, to += 16) {
    hn::Vec<decltype(d)> rows[4];
    for (std::int64_t row = 0; row < 4; ++row) {
      rows[row] = hn::BitCast(d, hn::LoadU(ByteTag(), from + row * bytes + at));
    }
    auto* units = reinterpret_cast<std::uint64_t*>(to);
    hn::StoreU(hn::InterleaveLower(d, rows[0], rows[1]), d, units);
    hn::StoreU(hn::InterleaveLower(d, rows[2], rows[3]), d, units + 2);
    hn::StoreU(hn::InterleaveUpper(d, rows[0], rows[1]), d, units + 4);
    hn::StoreU(hn::InterleaveUpper(d, rows[2], rows[3]), d, units + 6);
  }
}
#else
HWY_INLINE void transpose_codes(const std::uint8_t* from, std::int64_t bytes, std::uint32_t* to) {
  transpose<0>(from, bytes, to);
}
#endif

// A tile in scratch: codes [in / 8][kTileRows] words (with I8MM [in / 16][kTileRows] units of 8 bytes), then pairs of
// scales and of biases [groups / 2][kTileRows] words.
struct Tile {
  std::uint32_t* codes;
  std::uint32_t* scales;
  std::uint32_t* biases;
};

Tile make_tile(const QuantRows& weight, std::int64_t row, std::uint8_t* scratch) {
  const std::int64_t groups = weight.groups();
  Tile tile{};
  tile.codes = reinterpret_cast<std::uint32_t*>(scratch);
  tile.scales = tile.codes + weight.in / 8 * kTileRows;
  tile.biases = tile.scales + (groups + 7) / 8 * 4 * kTileRows;
  transpose_codes(weight.codes + row * weight.row_bytes(), weight.row_bytes(), tile.codes);
  transpose_values(weight.scales + row * groups, groups, tile.scales);
  transpose_values(weight.biases + row * groups, groups, tile.biases);
  return tile;
}

#ifdef LILY_COMPILING_I8MM
// The integer products of one group: one plane of kM records. Pairs of records times pairs of rows: sums[2p] has those
// of records 2p and 2p + 1 with rows 0 and 1, sums[2p + 1] with rows 2 and 3; split_pairs() makes a vector for each
// record.
template <int kM>
constexpr int kGroupSums = (kM + 1) / 2 * 2;

template <int kM>
HWY_INLINE void add_group(const std::uint32_t* codes, const std::uint8_t* const* records, std::int64_t offset,
                          SumVector* sums) {
  const hn::Repartition<std::uint64_t, ByteTag> dq;
  for (std::int64_t part = 0; part < 32; part += 16) {
    ByteVector low[4], high[4];  // rows 0 and 1, 2 and 3; then of the next 8 bytes
    for (int i = 0; i < 4; ++i) {
      const auto both = hn::BitCast(ByteTag(), hn::LoadU(WordTag(), codes + (part / 4 + i) * kTileRows));
      low[i] = low_halves(both);
      high[i] = high_halves(both);
    }
    const auto add = [&](const ByteVector* c, std::int64_t at) HWY_ATTR {
      for (int j = 0; j < kM; j += 2) {
        const auto x0 = hn::BitCast(dq, hn::LoadU(ByteTag(), records[j] + at));
        const auto x1 = j + 1 < kM ? hn::BitCast(dq, hn::LoadU(ByteTag(), records[HWY_MIN(j + 1, kM - 1)] + at)) : x0;
        const auto first = hn::BitCast(ByteTag(), hn::InterleaveLower(dq, x0, x1));
        const auto second = hn::BitCast(ByteTag(), hn::InterleaveUpper(dq, x0, x1));
        sums[j] = dot8_pairs(dot8_pairs(sums[j], first, c[0]), second, c[2]);
        sums[j + 1] = dot8_pairs(dot8_pairs(sums[j + 1], first, c[1]), second, c[3]);
      }
    };
    add(low, offset + part);
    add(high, offset + kOddOffset + part);
  }
}

template <int kM>
HWY_INLINE void split_pairs(SumVector* sums) {
  const SumTag d;
  const hn::Repartition<std::uint64_t, SumTag> dq;
  for (int j = 0; j < kM; j += 2) {
    const auto rows01 = hn::BitCast(dq, sums[j]);
    const auto rows23 = hn::BitCast(dq, sums[j + 1]);
    sums[j] = hn::BitCast(d, hn::InterleaveLower(dq, rows01, rows23));
    sums[j + 1] = hn::BitCast(d, hn::InterleaveUpper(dq, rows01, rows23));
  }
}
#else
template <int kM>
constexpr int kGroupSums = kM;

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

template <int kM>
HWY_INLINE void split_pairs(SumVector*) {}
#endif

// kM records times one tile, in integer-inl.h's order of sums.
template <int kM, int kPlanes>
void tile_products(const Tile& tile, const IntegerCall& call, std::int64_t m, std::int64_t column, Upcoming upcoming) {
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
    SumVector sums[kGroupSums<kM>];
    for (SumVector& sum : sums) sum = hn::Zero(SumTag());
    const std::uint32_t* codes = tile.codes + g * 8 * kTileRows;
    add_group<kM>(codes, records, even_offset(g), sums);
    if (kPlanes == 2) {
      for (SumVector& sum : sums) sum = hn::ShiftLeft<8>(sum);
      add_group<kM>(codes, records, even_offset(g) + layout.low_offset(), sums);
    }
    split_pairs<kM>(sums);
    upcoming.send_for();
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
using TileProducts = void (*)(const Tile& tile, const IntegerCall& call, std::int64_t m, std::int64_t column,
                              Upcoming upcoming);
template <int kPlanes, int... kIndex>
constexpr std::array<TileProducts, kMostRecords> all_sizes(std::integer_sequence<int, kIndex...>) {
  return {tile_products<kIndex + 1, kPlanes>...};
}

// Records that do not fit the second-level cache are taken a few parts at a time, by several tiles one after the other.
constexpr std::int64_t kCachedParts = 8;
constexpr std::int64_t kCacheBytes = std::int64_t{3} << 19;

template <int kPlanes>
void tiles(const IntegerCall& call) {
  constexpr auto kProducts = all_sizes<kPlanes>(std::make_integer_sequence<int, kMostRecords>());
  const std::int64_t parts = (call.m + kMostRecords - 1) / kMostRecords;
  const std::int64_t groups = call.layout.groups();
  const bool cached = call.m * call.layout.bytes() <= kCacheBytes;
  const std::int64_t at_once = cached ? 1 : kTilesAtOnce;
  const std::int64_t parts_at_once = cached ? parts : kCachedParts;
  for (std::int64_t row = 0; row < call.rows; row += at_once * kTileRows) {
    const std::int64_t count = HWY_MIN(at_once, (call.rows - row) / kTileRows);
    std::array<Tile, kTilesAtOnce> made;
    for (std::int64_t i = 0; i < count; ++i) {
      made[static_cast<std::size_t>(i)] = make_tile(*call.weight, call.begin + row + i * kTileRows,
                                                    call.scratch + i * integer_scratch(call.weight->in));
    }
    const std::int64_t steps = count * parts;
    const std::int64_t after = row + count * kTileRows;
    const bool inside = after < call.rows;
    Upcoming upcoming = upcoming_rows(inside ? call.weight : call.next, inside ? call.begin + after : call.next_begin,
                                      count * kTileRows, steps * groups);
    for (std::int64_t part = 0; part < parts; part += parts_at_once) {
      for (std::int64_t i = 0; i < count; ++i) {
        for (std::int64_t p = part; p < HWY_MIN(part + parts_at_once, parts); ++p) {
          const std::int64_t m = call.m * p / parts;
          const std::int64_t records = call.m * (p + 1) / parts - m;
          kProducts[static_cast<std::size_t>(records - 1)](made[static_cast<std::size_t>(i)], call, m,
                                                           row + i * kTileRows, upcoming);
          upcoming.skip(groups);
        }
      }
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
