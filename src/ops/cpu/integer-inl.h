// What the integer kernels share: where a record keeps its values, four products of bytes per 32-bit lane (the one
// instruction that the sets differ in), and the order of float sums, so that a row gets the same bits from any of them:
//     sum = fma(bias_w, sum_x, sum) for all groups in ascending order, then
//     sum = fma(float(sum of code * q), scale_w * scale_x, sum) for all groups in ascending order.
#if defined(LILY_OPS_CPU_INTEGER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LILY_OPS_CPU_INTEGER_INL_H_
#undef LILY_OPS_CPU_INTEGER_INL_H_
#else
#define LILY_OPS_CPU_INTEGER_INL_H_
#endif

#include <cstring>

#include "ops/cpu/kernels.h"
#include "ops/cpu/simd-inl.h"

// Vectors of at least four 32-bit lanes; without them there is only the plain code.
#undef LILY_INTEGER_SIMD
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
#define LILY_INTEGER_SIMD 0
#else
#define LILY_INTEGER_SIMD 1
#endif

// ARM's dot product and matrix product (kernel_tables.h). GCC drops what -march gives where Highway sets the features
// of a function, so they are named once more; with clang they come from -march alone.
#if HWY_COMPILER_GCC_ACTUAL && defined(LILY_COMPILING_DOTPROD)
#undef HWY_TARGET_STR
#define HWY_TARGET_STR "arch=armv8.2-a+crypto+dotprod"
#elif HWY_COMPILER_GCC_ACTUAL && defined(LILY_COMPILING_I8MM)
#undef HWY_TARGET_STR
#define HWY_TARGET_STR "arch=armv8.2-a+crypto+dotprod+i8mm"
#endif

HWY_BEFORE_NAMESPACE();
namespace lily::cpu::HWY_NAMESPACE {

#if LILY_INTEGER_SIMD
inline constexpr std::int64_t kVectorBytes = HWY_LANES(std::uint8_t);
#else
inline constexpr std::int64_t kVectorBytes = 1;
#endif
// Groups whose even (then odd) values lie together in a record: those that one vector of codes holds.
inline constexpr std::int64_t kBlockGroups = kVectorBytes >= 64 ? 2 : 1;

// Offset in a plane of the even values of a group; the odd ones are kOddOffset further.
HWY_INLINE std::int64_t even_offset(std::int64_t group) {
  return group / kBlockGroups * (kBlockGroups * kRecordGroup) + group % kBlockGroups * 32;
}
inline constexpr std::int64_t kOddOffset = kBlockGroups * 32;

HWY_INLINE const std::uint8_t* record_of(const IntegerCall& call, std::int64_t m) {
  return call.x + (call.index ? call.index[m] : m) * call.layout.bytes();
}
HWY_INLINE const float* record_scales(const RecordLayout& layout, const std::uint8_t* record) {
  return reinterpret_cast<const float*>(record + layout.scale_offset());
}
HWY_INLINE const float* record_sums(const RecordLayout& layout, const std::uint8_t* record) {
  return reinterpret_cast<const float*>(record + layout.sum_offset());
}

#if LILY_INTEGER_SIMD

using SumTag = hn::RebindToSigned<FloatTag>;
using WordTag = hn::RebindToUnsigned<FloatTag>;
using ByteTag = hn::Repartition<std::uint8_t, WordTag>;
using SumVector = hn::Vec<SumTag>;
using WordVector = hn::Vec<WordTag>;
using ByteVector = hn::Vec<ByteTag>;

/// sums[i] += codes[4i] * x[4i] + ... + codes[4i + 3] * x[4i + 3]; codes in [0, 15], x signed bytes.
HWY_INLINE SumVector dot4(SumVector sums, ByteVector codes, ByteVector x) {
#if HWY_TARGET == HWY_AVX3_DL
  // As text: Highway 1.0.3 takes VNNI for granted in this target but does not tell the compiler.
  asm("vpdpbusd %2, %1, %0" : "+v"(sums.raw) : "v"(codes.raw), "v"(x.raw));
  return sums;
#elif HWY_TARGET == HWY_AVX3
  const __m512i pairs = _mm512_maddubs_epi16(codes.raw, x.raw);
  return SumVector{_mm512_add_epi32(sums.raw, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))};
#elif defined(LILY_COMPILING_AVX2VNNI)
  // As text: older compilers do not know AVX-VNNI. Without {vex} the assembler takes AVX-512's encoding.
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sums.raw) : "x"(codes.raw), "x"(x.raw));
  return sums;
#elif HWY_TARGET == HWY_AVX2
  const __m256i pairs = _mm256_maddubs_epi16(codes.raw, x.raw);
  return SumVector{_mm256_add_epi32(sums.raw, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))};
#elif defined(LILY_COMPILING_DOTPROD) || defined(LILY_COMPILING_I8MM)
  return SumVector{vdotq_s32(sums.raw, vreinterpretq_s8_u8(codes.raw), vreinterpretq_s8_u8(x.raw))};
#elif HWY_ARCH_ARM_A64
  const int8x16_t a = vreinterpretq_s8_u8(codes.raw);
  const int8x16_t b = vreinterpretq_s8_u8(x.raw);
  const int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b));
  const int16x8_t high = vmull_s8(vget_high_s8(a), vget_high_s8(b));
  return SumVector{vaddq_s32(sums.raw, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)))};
#else
  // Bytes widened inside 16-bit lanes by shifts; a pair's sum is at most 2 * 15 * 127.
  const SumTag d;
  const hn::Repartition<std::int16_t, SumTag> dh;
  const hn::Repartition<std::uint16_t, SumTag> du;
  const auto code = hn::BitCast(du, codes);
  const auto value = hn::BitCast(dh, x);
  const auto even =
      hn::Mul(hn::BitCast(dh, hn::And(code, hn::Set(du, 0xff))), hn::ShiftRight<8>(hn::ShiftLeft<8>(value)));
  const auto odd = hn::Mul(hn::BitCast(dh, hn::ShiftRight<8>(code)), hn::ShiftRight<8>(value));
  const auto pairs = hn::BitCast(d, hn::Add(even, odd));
  return hn::Add(sums, hn::Add(hn::ShiftRight<16>(hn::ShiftLeft<16>(pairs)), hn::ShiftRight<16>(pairs)));
#endif
}

/// dot4 with the same four values for every lane.
HWY_INLINE SumVector dot4_same(SumVector sums, ByteVector codes, const std::uint8_t* x) {
#if HWY_TARGET == HWY_AVX3_DL
  const auto* word = reinterpret_cast<const std::uint32_t*>(x);
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sums.raw) : "v"(codes.raw), "m"(*word));
  return sums;
#else
  std::uint32_t word = 0;
  std::memcpy(&word, x, 4);
  return dot4(sums, codes, hn::BitCast(ByteTag(), hn::Set(WordTag(), word)));
#endif
}

#ifdef LILY_COMPILING_I8MM
/// sums[2i + j] += x[8i] * codes[8j] + ... + x[8i + 7] * codes[8j + 7]: two rows of bytes with two others.
HWY_INLINE SumVector dot8_pairs(SumVector sums, ByteVector x, ByteVector codes) {
  return SumVector{vmmlaq_s32(sums.raw, vreinterpretq_s8_u8(x.raw), vreinterpretq_s8_u8(codes.raw))};
}
#endif

HWY_INLINE ByteVector low_halves(ByteVector codes) {
  return hn::And(codes, hn::Set(ByteTag(), 15));
}
HWY_INLINE ByteVector high_halves(ByteVector codes) {
  const hn::Repartition<std::uint16_t, ByteTag> du;
  return hn::And(hn::BitCast(ByteTag(), hn::ShiftRight<4>(hn::BitCast(du, codes))), hn::Set(ByteTag(), 15));
}

// ---- tiles: as many weight rows as a vector has 32-bit lanes, lane = row ----

inline constexpr std::int64_t kTileRows = HWY_LANES(std::uint32_t);
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

// to[word][row] for rows of `bytes` bytes; `to` has room for whole blocks of four words. The tile that comes kAhead
// tiles later is sent for to the second-level cache (the first is full with this one); 0: none is.
template <int kAhead>
HWY_INLINE void transpose(const std::uint8_t* from, std::int64_t bytes, std::uint32_t* to) {
  std::int64_t at = 0;
  for (; at + 16 <= bytes; at += 16) {
    if (kAhead > 0 && at % 64 == 0) {
      const std::uint8_t* ahead = from + kAhead * kTileRows * bytes + at;
      for (std::int64_t row = 0; row < kTileRows; ++row) __builtin_prefetch(ahead + row * bytes, 0, 2);
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

// Scales or biases of kTileRows rows to pairs of groups, as group_value() takes them.
HWY_INLINE void transpose_values(const BFloat16* from, std::int64_t groups, std::uint32_t* to) {
  transpose<0>(reinterpret_cast<const std::uint8_t*>(from), 2 * groups, to);
}

// The even or odd bfloat16 of a pair of groups as float32.
HWY_INLINE FloatVector group_value(const std::uint32_t* pairs, std::int64_t group) {
  const WordTag d;
  const WordVector both = hn::LoadU(d, pairs + group / 2 * kTileRows);
  const WordVector bits = group % 2 == 0 ? hn::ShiftLeft<16>(both) : hn::And(both, hn::Set(d, 0xffff0000U));
  return hn::BitCast(FloatTag(), bits);
}

#endif  // LILY_INTEGER_SIMD

}  // namespace lily::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
