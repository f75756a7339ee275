// Linear maps with AMX for many rows of activations. The depth of one product of tiles is a group of 64; its 32-bit
// sums, 16 records by 16 weight rows, go through the cache to vectors, lane = weight row, that scale and add them in
// integer-inl.h's order.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/kernels_amx.cpp"  // NOLINT
#include <array>
#include <type_traits>
#include <utility>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "ops/cpu/amx_tiles.h"
#include "ops/cpu/integer-inl.h"
#include "ops/cpu/kernel_tables.h"
#include "ops/cpu/simd-inl.h"
#include "ops/cpu/upcoming.h"

HWY_BEFORE_NAMESPACE();
namespace lily::cpu::HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_AVX3_DL  // what every CPU with AMX has

constexpr std::int64_t kTile = AmxTiles::kBytes;
constexpr std::int64_t kPart = 16;  // records
// So many groups of 16 rows' codes are bytes at a time: 8 KiB, which stay in the first-level cache for all parts.
constexpr std::int64_t kSpanGroups = 8;

// How many parts' records are in scratch at a time: what fits the second-level cache.
std::int64_t parts_at_once(std::int64_t in) {
  constexpr std::int64_t kCacheBytes = std::int64_t{1} << 20;
  return HWY_MAX(std::int64_t{1}, HWY_MIN(std::int64_t{16}, kCacheBytes / (kPart * in)));
}

// The memory of one call, or only how many bytes that is.
struct Memory {
  std::uint8_t* records = nullptr;      // [parts][groups][16][64]: a group's even values, then its odd ones
  float* scales = nullptr;              // [parts][groups][16], the records'
  float* sums = nullptr;                // [parts][groups][16], the records'
  float* totals = nullptr;              // [parts][16 records][16 weight rows]
  std::uint8_t* codes = nullptr;        // [kSpanGroups][16][16][4]: four even values' of each row, ..., four odd ones'
  std::int32_t* products = nullptr;     // [2][16 records][16 weight rows]
  std::uint32_t* row_scales = nullptr;  // pairs of groups for group_value(), the weight rows'
  std::uint32_t* row_biases = nullptr;
  std::int64_t bytes = 0;
};

Memory memory_at(std::uint8_t* begin, std::int64_t in) {
  const std::int64_t groups = in / kRecordGroup;
  const std::int64_t parts = parts_at_once(in);
  const std::int64_t pairs = (groups + 7) / 8 * 4;
  Memory memory;
  const auto take = [&](auto*& pointer, std::int64_t bytes) {
    if (begin != nullptr) pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(begin + memory.bytes);
    memory.bytes += bytes;
  };
  take(memory.records, parts * groups * kTile);
  take(memory.scales, parts * groups * kPart * 4);
  take(memory.sums, parts * groups * kPart * 4);
  take(memory.totals, parts * kTile);
  take(memory.codes, kSpanGroups * kTile);
  take(memory.products, 2 * kTile);
  take(memory.row_scales, pairs * kTileRows * 4);
  take(memory.row_biases, pairs * kTileRows * 4);
  return memory;
}

// A record to its row of a part.
void place_record(const RecordLayout& layout, const std::uint8_t* record, const Memory& memory, std::int64_t part,
                  std::int64_t row) {
  const ByteTag d;
  const std::int64_t groups = layout.groups();
  std::uint8_t* to = memory.records + part * groups * kTile + row * kRecordGroup;
  for (std::int64_t g = 0; g < groups; g += kBlockGroups, to += kBlockGroups * kTile) {
    const ByteVector even = hn::LoadU(d, record + g * kRecordGroup);
    const ByteVector odd = hn::LoadU(d, record + g * kRecordGroup + kOddOffset);
    hn::Store(hn::ConcatLowerLower(d, odd, even), d, to);
    if (g + 1 < groups) hn::Store(hn::ConcatUpperUpper(d, odd, even), d, to + kTile);
  }
  float* scales = memory.scales + part * groups * kPart + row;
  float* sums = memory.sums + part * groups * kPart + row;
  for (std::int64_t g = 0; g < groups; ++g) {
    scales[g * kPart] = record_scales(layout, record)[g];
    sums[g * kPart] = record_sums(layout, record)[g];
  }
}

// 16 rows' codes of one group to bytes, from rows of `stride` bytes.
HWY_INLINE void expand_codes(const std::uint8_t* from, std::int64_t stride, std::uint8_t* to) {
  const ByteTag d;
  alignas(64) std::array<std::uint32_t, 8 * kTileRows> words;
  transpose_four(from, stride, words.data());
  transpose_four(from + 16, stride, words.data() + 4 * kTileRows);
  for (std::int64_t word = 0; word < 8; ++word) {
    const ByteVector both = hn::BitCast(d, hn::Load(WordTag(), words.data() + word * kTileRows));
    hn::Store(low_halves(both), d, to + word * kVectorBytes);
    hn::Store(high_halves(both), d, to + (8 + word) * kVectorBytes);
  }
}

// Some consecutive groups.
struct Span {
  std::int64_t first = 0;
  std::int64_t groups = 0;
  std::int64_t all = 0;  // of the matrix
};

// One part's kM records times 16 weight rows in some groups.
template <int kM>
HWY_NOINLINE void add_products(const Memory& memory, std::int64_t part, const Span& span, Upcoming upcoming,
                               AmxTiles& tiles) {
  const FloatTag d;
  float* const totals = memory.totals + part * kPart * kTileRows;
  FloatVector total[kM];
  if (span.first == 0) {
    const float* sums = memory.sums + part * span.all * kPart;
#pragma GCC unroll 16
    for (int j = 0; j < kM; ++j) total[j] = hn::Zero(d);
    for (std::int64_t g = 0; g < span.all; ++g) {
      const FloatVector bias = group_value(memory.row_biases, g);
#pragma GCC unroll 16
      for (int j = 0; j < kM; ++j) total[j] = hn::MulAdd(bias, hn::Set(d, sums[g * kPart + j]), total[j]);
    }
  } else {
#pragma GCC unroll 16
    for (int j = 0; j < kM; ++j) total[j] = hn::Load(d, totals + j * kTileRows);
  }

  const std::int64_t begin = part * span.all + span.first;
  const std::uint8_t* const records = memory.records + begin * kTile;
  const float* const scales = memory.scales + begin * kPart;
  std::int32_t* const products[] = {memory.products, memory.products + kPart * kTileRows};
  const auto add = [&](std::int64_t g) HWY_ATTR {
    const std::int32_t* from = products[g % 2];
    const FloatVector scale = group_value(memory.row_scales, span.first + g);
#pragma GCC unroll 16
    for (int j = 0; j < kM; ++j) {
      const FloatVector factor = hn::Mul(scale, hn::Set(d, scales[g * kPart + j]));
      total[j] = hn::MulAdd(hn::ConvertTo(d, hn::Load(SumTag(), from + j * kTileRows)), factor, total[j]);
    }
    upcoming.send_for();
  };
  // While the tiles compute one group's products, those of the group before are stored and those before them added.
  const auto step = [&]<int kOwn>(std::int64_t g, std::integral_constant<int, kOwn>) HWY_ATTR {
    if (g + 1 < span.groups) tiles.start<1 - kOwn>(records + (g + 1) * kTile, memory.codes + (g + 1) * kTile);
    tiles.store<kOwn>(products[kOwn]);
    if (g > 0) add(g - 1);
  };
  tiles.start<0>(records, memory.codes);
  for (std::int64_t g = 0; g < span.groups; g += 2) {
    step(g, std::integral_constant<int, 0>());
    if (g + 1 < span.groups) step(g + 1, std::integral_constant<int, 1>());
  }
  add(span.groups - 1);
#pragma GCC unroll 16
  for (int j = 0; j < kM; ++j) hn::Store(total[j], d, totals + j * kTileRows);
}

using AddProducts = void (*)(const Memory& memory, std::int64_t part, const Span& span, Upcoming upcoming,
                             AmxTiles& tiles);
template <int... kIndex>
constexpr std::array<AddProducts, kPart> all_sizes(std::integer_sequence<int, kIndex...>) {
  return {add_products<kIndex + 1>...};
}

// The records of a call in parts of about the same size.
struct Parts {
  std::int64_t records = 0;
  std::int64_t count = 0;

  explicit Parts(std::int64_t m) : records(m), count((m + kPart - 1) / kPart) {}
  std::int64_t begin(std::int64_t part) const { return records * part / count; }
  std::int64_t size(std::int64_t part) const { return begin(part + 1) - begin(part); }
  std::int64_t largest() const { return (records + count - 1) / count; }
};

// Some parts' totals for the weight rows from `column` on.
void put_totals(const IntegerCall& call, const Parts& parts, std::int64_t first, std::int64_t count,
                const Memory& memory, std::int64_t column) {
  const FloatTag d;
  for (std::int64_t part = 0; part < count; ++part) {
    for (std::int64_t j = 0; j < parts.size(first + part); ++j) {
      float* out = call.out + (parts.begin(first + part) + j) * call.out_stride + column;
      const FloatVector total = hn::Load(d, memory.totals + (part * kPart + j) * kTileRows);
      hn::StoreU(call.add ? hn::Add(total, hn::LoadU(d, out)) : total, d, out);
    }
  }
}

void amx_products(const IntegerCall& call) {
  constexpr auto kAddProducts = all_sizes(std::make_integer_sequence<int, kPart>());
  const QuantRows& weight = *call.weight;
  const std::int64_t groups = weight.groups();
  const Memory memory = memory_at(call.scratch, weight.in);
  const Parts parts(call.m);
  const std::int64_t at_once = parts_at_once(weight.in);
  const bool placed = call.same_records && parts.count <= at_once;
  AmxTiles tiles(parts.largest());
  for (std::int64_t first = 0; first < parts.count; first += at_once) {
    const std::int64_t count = HWY_MIN(at_once, parts.count - first);
    for (std::int64_t part = 0; part < count && !placed; ++part) {
      for (std::int64_t j = 0; j < parts.size(first + part); ++j) {
        place_record(call.layout, record_of(call, parts.begin(first + part) + j), memory, part, j);
      }
    }
    const bool last = first + count == parts.count;
    for (std::int64_t row = 0; row < call.rows; row += kTileRows) {
      const std::int64_t begin = call.begin + row;
      const bool inside = row + kTileRows < call.rows;
      Upcoming upcoming = inside ? upcoming_rows(&weight, begin + kTileRows, kTileRows, count * groups)
                                 : upcoming_rows(last ? call.next : &weight, last ? call.next_begin : call.begin,
                                                 kTileRows, count * groups);
      transpose_values(weight.scales + begin * groups, groups, memory.row_scales);
      transpose_values(weight.biases + begin * groups, groups, memory.row_biases);
      for (Span span{0, 0, groups}; span.first < groups; span.first += kSpanGroups) {
        span.groups = HWY_MIN(kSpanGroups, groups - span.first);
        const std::uint8_t* codes = weight.codes + begin * weight.row_bytes() + span.first * kRecordGroup / 2;
        for (std::int64_t g = 0; g < span.groups; ++g) {
          expand_codes(codes + g * kRecordGroup / 2, weight.row_bytes(), memory.codes + g * kTile);
        }
        for (std::int64_t part = 0; part < count; ++part) {
          kAddProducts[static_cast<std::size_t>(parts.size(first + part) - 1)](memory, part, span, upcoming, tiles);
          upcoming.skip(span.groups);
        }
      }
      put_totals(call, parts, first, count, memory, row);
    }
  }
}

std::int64_t amx_scratch(std::int64_t in) {
  return memory_at(nullptr, in).bytes;
}

#ifndef LILY_EMULATED_AMX
double dot_loop(std::int64_t passes) {
  const AmxTiles tiles(16);
  for (std::int64_t pass = 0; pass < passes; ++pass) AmxTiles::multiply_only();
  return 2.0 * static_cast<double>(passes * 4 * 16 * 64 * 16);
}
#endif

void fill(Kernels& kernels) {
#ifndef LILY_EMULATED_AMX
  kernels.dot_loop = dot_loop;
#endif
  kernels.matrix_unit = amx_products;
  kernels.matrix_unit_scratch = amx_scratch;
}

#else

void fill(Kernels&) {}

#endif

}  // namespace
}  // namespace lily::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lily::cpu {
HWY_EXPORT(fill);
void LILY_FILL(amx_kernels)(Kernels& kernels) {
  HWY_DYNAMIC_DISPATCH(fill)(kernels);
}
}  // namespace lily::cpu
#endif
