// Linear maps with integer products for few rows of activations (decode): each row of codes is read once, front to
// back, where it lies in the checkpoint, and its partial sums lie along the row. Memory speed is what counts.
//
//     sum_i w[i] x[i] = sum over groups of  scale_w * scale_x * sum_i code[i] q[i]  +  bias_w * sum_x
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/cpu/kernels_integer_rows.cpp"  // NOLINT
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "ops/cpu/integer-inl.h"
#include "ops/cpu/kernel_tables.h"
#include "ops/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lily::cpu::HWY_NAMESPACE {
namespace {

#if LILY_INTEGER_SIMD

// Weight rows taken at once share the loads of the record and the sums over lanes. About 4 KB of codes, since those of
// the next rows are asked for meanwhile: measured, codes that come from memory then stream at the speed of plain reads.
// Rows of 2 KB are better off with twice that (four rows, 18.6 instead of 15.3 GB/s a thread).
constexpr std::int64_t kBatchBytes = 4096;

// factors[g] = scale_w * scale_x; gives the products of a row's biases and the sums of x, summed over no lanes yet.
HWY_INLINE FloatVector group_factors(const BFloat16* scales, const BFloat16* biases, std::int64_t groups,
                                     const float* x_scales, const float* x_sums, float* factors) {
  const FloatTag d;
  const hn::Half<FloatTag> half;
  constexpr std::int64_t kLanes = HWY_LANES(float);
  FloatVector sum = hn::Zero(d);
  std::int64_t g = 0;
  for (; g + kLanes <= groups; g += kLanes) {
    hn::StoreU(hn::Mul(load_bfloat16(d, scales + g), hn::LoadU(d, x_scales + g)), d, factors + g);
    sum = hn::MulAdd(load_bfloat16(d, biases + g), hn::LoadU(d, x_sums + g), sum);
  }
  if (g + kLanes / 2 <= groups) {
    hn::StoreU(hn::Mul(load_bfloat16(half, scales + g), hn::LoadU(half, x_scales + g)), half, factors + g);
    const auto part = hn::Mul(load_bfloat16(half, biases + g), hn::LoadU(half, x_sums + g));
    sum = hn::Add(sum, hn::ZeroExtendVector(d, part));
    g += kLanes / 2;
  }
  if (g < groups) {
    float rest = 0;
    for (; g < groups; ++g) {
      factors[g] = static_cast<float>(scales[g]) * x_scales[g];
      rest += static_cast<float>(biases[g]) * x_sums[g];
    }
    sum = hn::Add(sum, hn::IfThenElseZero(hn::FirstN(d, 1), hn::Set(d, rest)));
  }
  return sum;
}

// The even and odd values of one block of a record, all planes.
template <int kPlanes>
struct Values {
  Values(const std::uint8_t* at, std::int64_t low_offset) {
    const ByteTag d;
    for (int p = 0; p < kPlanes; ++p) {
      even[p] = hn::LoadU(d, at + p * low_offset);
      odd[p] = hn::LoadU(d, at + p * low_offset + kOddOffset);
    }
  }
  HWY_INLINE FloatVector products(ByteVector codes) const {
    const ByteVector low = low_halves(codes);
    const ByteVector high = high_halves(codes);
    SumVector sum = dot4(dot4(hn::Zero(SumTag()), low, even[0]), high, odd[0]);
    if (kPlanes == 2) sum = dot4(dot4(hn::ShiftLeft<8>(sum), low, even[kPlanes - 1]), high, odd[kPlanes - 1]);
    return hn::ConvertTo(FloatTag(), sum);
  }
  ByteVector even[kPlanes], odd[kPlanes];
};

// factors[g] in the lanes of group g's products.
HWY_INLINE FloatVector spread_factors(const float* factors) {
  const FloatTag d;
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  const hn::Half<FloatTag> half;
  return hn::Combine(d, hn::Set(half, factors[1]), hn::Set(half, factors[0]));
#else
  return hn::Set(d, factors[0]);
#endif
}

// kRows neighbouring weight rows times one record.
template <int kPlanes, int kRows>
HWY_INLINE void row_sums(const QuantRows& weight, std::int64_t row, const RecordLayout& layout,
                         const std::uint8_t* record, float* factors, FloatVector* sums) {
  const ByteTag db;
  const std::int64_t groups = weight.groups();
  const std::int64_t row_bytes = weight.row_bytes();
  const std::int64_t low_offset = layout.low_offset();
  const std::uint8_t* codes = weight.codes + row * row_bytes;
  for (int r = 0; r < kRows; ++r) {
    const std::int64_t at = (row + r) * groups;
    sums[r] = group_factors(weight.scales + at, weight.biases + at, groups, record_scales(layout, record),
                            record_sums(layout, record), factors + r * groups);
  }
  std::int64_t g = 0;
  for (; g + kBlockGroups <= groups; g += kBlockGroups) {
    for (std::int64_t part = 0; part < kBlockGroups * 32; part += kVectorBytes) {
      const Values<kPlanes> x(record + even_offset(g) + part, low_offset);
      for (int r = 0; r < kRows; ++r) {
        // In the order of addresses, which is not that of use: so the hardware sees one stream.
        hwy::Prefetch(codes + HWY_MAX(kBatchBytes, kRows * row_bytes) + (g * 32 + part) * kRows + r * kVectorBytes);
        const ByteVector c = hn::LoadU(db, codes + r * row_bytes + g * 32 + part);
        sums[r] = hn::MulAdd(x.products(c), spread_factors(factors + r * groups + g), sums[r]);
      }
    }
  }
  if (g < groups) {  // half a block: the other half is zeros
    const hn::Half<ByteTag> half;
    const Values<kPlanes> x(record + even_offset(g), low_offset);
    for (int r = 0; r < kRows; ++r) {
      const ByteVector c = hn::ZeroExtendVector(db, hn::LoadU(half, codes + r * row_bytes + g * 32));
      sums[r] = hn::MulAdd(x.products(c), hn::Set(FloatTag(), factors[r * groups + g]), sums[r]);
    }
  }
}

// Rows [row, row + kRows) of the call.
template <int kPlanes, int kRows>
HWY_INLINE void batch_products(const IntegerCall& call, std::int64_t row) {
  auto* factors = reinterpret_cast<float*>(call.scratch);
  for (std::int64_t m = 0; m < call.m; ++m) {
    float results[kRows];
    FloatVector sums[kRows];
    row_sums<kPlanes, kRows>(*call.weight, call.begin + row, call.layout, record_of(call, m), factors, sums);
    if constexpr (kRows % 4 == 0) {
      for (int r = 0; r < kRows; r += 4) sums_of_four(sums + r, results + r);
    } else {
      for (int r = 0; r < kRows; ++r) results[r] = sum_of(FloatTag(), sums[r]);
    }
    float* out = call.out + m * call.out_stride + row;
    for (int r = 0; r < kRows; ++r) out[r] = call.add ? out[r] + results[r] : results[r];
  }
}

template <int kPlanes, int kRows>
HWY_INLINE void all_batches(const IntegerCall& call) {
  std::int64_t row = 0;
  for (; row + kRows <= call.rows; row += kRows) batch_products<kPlanes, kRows>(call, row);
  for (; row < call.rows; ++row) batch_products<kPlanes, 1>(call, row);
}

template <int kPlanes>
void row_products(const IntegerCall& call) {
  const std::int64_t bytes = call.weight->row_bytes();
  if (8 * bytes <= kBatchBytes) {
    all_batches<kPlanes, 8>(call);
  } else if (4 * bytes <= 2 * kBatchBytes) {
    all_batches<kPlanes, 4>(call);
  } else {
    all_batches<kPlanes, 2>(call);
  }
}

#else

template <int kPlanes>
float row_product(const QuantRows& weight, std::int64_t row, const RecordLayout& layout, const std::uint8_t* record) {
  const std::uint8_t* codes = weight.codes + row * weight.row_bytes();
  const BFloat16* scales = weight.scales + row * weight.groups();
  const BFloat16* biases = weight.biases + row * weight.groups();
  float sum = 0;
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
    sum += static_cast<float>(scales[g]) * record_scales(layout, record)[g] * static_cast<float>(products) +
           static_cast<float>(biases[g]) * record_sums(layout, record)[g];
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
