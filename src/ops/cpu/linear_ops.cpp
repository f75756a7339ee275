// embed, project, project_add, lm_head: what is nothing but rows times a matrix.
#include <algorithm>
#include <cstring>

#include "ops/cpu/ops_impl.h"
#include "support/error.h"

namespace lily::cpu {
namespace {

// Weight rows per item: enough work to hide the hand-out, few enough that the threads end together.
constexpr std::int64_t kBlockRows = 64;
// For one row of activations reading is all the work, and a matrix unit puts all records in order for each item: runs
// of memory are up to so many times longer, where that leaves each thread enough items.
constexpr std::int64_t kLongerRuns = 4;
constexpr std::int64_t kItemsPerThread = 8;
// Rows of activations from which transposing the codes is worth it.
constexpr std::int64_t kTilesFrom = 2;

}  // namespace

double CpuOps::stored_bytes(const Weight& weight) {
  double bytes = 0;
  for (const QuantRows& part : matrix(weight).parts()) bytes += stored_bytes(part);
  return bytes;
}

CpuOps::Input CpuOps::prepare(const Tensor& x, std::span<const std::int64_t> rows, const Vector* norm) {
  const std::int64_t count = rows.empty() ? x.rows : static_cast<std::int64_t>(rows.size());
  const RecordLayout layout = layout_of(x.cols);
  const bool integers = activations_ != Activations::kFloat32 && x.cols % kRecordGroup == 0;
  float* normed = normed_.get<float>(count * x.cols);
  auto* records = integers ? records_.get<std::uint8_t>(count * layout.bytes()) : nullptr;
  for_rows(count, [&](std::int64_t i) {
    const float* from = values(x) + (rows.empty() ? i : rows[static_cast<std::size_t>(i)]) * x.cols;
    float* to = normed + i * x.cols;
    if (norm != nullptr) {
      kernels_.rms_norm(from, values(*norm), config_.rms_norm_eps, 1.0F, x.cols, to);
    } else {
      std::memcpy(to, from, static_cast<std::size_t>(x.cols) * sizeof(float));
    }
    if (integers) kernels_.quantize(to, 0, layout.groups(), layout, records + i * layout.bytes());
  });
  return {normed, records, layout};
}

void CpuOps::multiply(const Input& input, const Product& product, std::byte* scratch) const {
  const QuantRows& weight = *product.weight;
  if (input.records != nullptr && takes_records(weight)) {
    IntegerCall call{.weight = &weight,
                     .begin = product.begin,
                     .rows = product.rows,
                     .x = input.records,
                     .layout = input.layout,
                     .index = product.index,
                     .m = product.m,
                     .out = product.out,
                     .out_stride = product.out_stride,
                     .add = product.add,
                     .scratch = reinterpret_cast<std::uint8_t*>(scratch),
                     .same_records = product.same_input,
                     .next = product.next,
                     .next_begin = product.next_begin};
    if (kernels_.tile_rows > 0 && product.m >= kTilesFrom) {
      call.rows = product.rows / kernels_.tile_rows * kernels_.tile_rows;
      by_matrix_unit(call.m) ? kernels_.matrix_unit(call) : kernels_.integer_tiles(call);
      call.begin += call.rows;
      call.out += call.rows;
      call.rows = product.rows - call.rows;
    }
    if (call.rows > 0) kernels_.integer_rows(call);
  } else {
    kernels_.linear({.weight = &weight,
                     .begin = product.begin,
                     .rows = product.rows,
                     .x = input.values,
                     .x_stride = weight.in,
                     .index = product.index,
                     .m = product.m,
                     .out = product.out,
                     .out_stride = product.out_stride,
                     .add = product.add,
                     .scratch = reinterpret_cast<float*>(scratch)});
  }
}

void CpuOps::multiply_all(const Input& input, std::int64_t rows, const Weight& weight, float* out, bool add) {
  const MatrixStorage& storage = matrix(weight);
  std::int64_t scratch_bytes = 0;
  for (const QuantRows& part : storage.parts()) scratch_bytes = std::max(scratch_bytes, product_scratch(part));
  std::byte* scratch = thread_scratch(scratch_bytes);
  const std::int64_t runs = weight.out / (kBlockRows * kItemsPerThread * pool_.size());
  const std::int64_t block_rows =
      kBlockRows * (rows == 1 || by_matrix_unit(rows) ? std::clamp<std::int64_t>(runs, 1, kLongerRuns) : 1);
  const std::int64_t blocks = storage.blocks(block_rows);
  pool_.run(blocks, [&](std::int64_t item, int thread) noexcept {
    const RowBlock block = storage.block(item, block_rows);
    const RowBlock next = item + 1 < blocks ? storage.block(item + 1, block_rows) : RowBlock{};
    multiply(input,
             {.weight = block.part,
              .begin = block.begin,
              .rows = block.rows,
              .m = rows,
              .out = out + block.column,
              .out_stride = weight.out,
              .add = add,
              .next = next.part,
              .next_begin = next.begin},
             scratch + thread * scratch_bytes);
  });
}

void CpuOps::embed(const Weight& table, std::span<const std::int32_t> tokens, Tensor& x) {
  const QuantRows& rows = matrix(table).parts().front();
  for (const std::int32_t token : tokens) LILY_CHECK(token >= 0 && token < rows.out);
  LILY_CHECK(x.rows == static_cast<std::int64_t>(tokens.size()) && x.cols == rows.in);
  const Profile::Scope scope(profile_, "embed", static_cast<double>(x.rows * rows.stored_row_bytes()), 0);
  float* out = values(x);
  for_rows(x.rows, [&](std::int64_t row) {
    kernels_.dequantize(rows, tokens[static_cast<std::size_t>(row)], out + row * x.cols);
  });
}

void CpuOps::project(const Tensor& x, const Vector& norm, const Weight& weight, Tensor& out) {
  LILY_CHECK(x.cols == weight.in && out.cols == weight.out && out.rows == x.rows && norm.size == x.cols);
  const Profile::Scope scope(profile_, "project", stored_bytes(weight), operations(x.rows, weight.out, weight.in));
  multiply_all(prepare(x, {}, &norm), x.rows, weight, values(out), false);
}

void CpuOps::project_add(const Tensor& in, const Weight& weight, Tensor& x) {
  LILY_CHECK(in.cols == weight.in && x.cols == weight.out && x.rows == in.rows);
  const Profile::Scope scope(profile_, "project_add", stored_bytes(weight), operations(x.rows, weight.out, weight.in));
  multiply_all(prepare(in, {}, nullptr), in.rows, weight, values(x), true);
}

void CpuOps::lm_head(const Tensor& x, const Vector& norm, const Weight& head, std::span<const std::int64_t> rows,
                     Tensor& logits) {
  const auto count = static_cast<std::int64_t>(rows.size());
  LILY_CHECK(x.cols == head.in && logits.cols == head.out && logits.rows == count && norm.size == x.cols);
  if (count == 0) return;
  const Profile::Scope scope(profile_, "lm_head", stored_bytes(head), operations(count, head.out, head.in));
  multiply_all(prepare(x, rows, &norm), count, head, values(logits), false);
}

}  // namespace lily::cpu
