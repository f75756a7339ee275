// embed, project, project_add, lm_head: what is nothing but rows times a matrix.
#include <algorithm>

#include "ops/cpu/ops_impl.h"
#include "support/error.h"

namespace lily::cpu {
namespace {

// Weight rows per item: enough work to hide the hand-out, few enough that the threads end together.
constexpr std::int64_t kBlockRows = 64;

}  // namespace

void CpuOps::linear(const float* x, std::int64_t rows, const Weight& weight, float* out, bool add) {
  const MatrixStorage& storage = matrix(weight);
  const std::int64_t scratch_floats = kLinearTileRows * weight.in;
  float* scratch = thread_scratch(scratch_floats);
  pool_.run(storage.blocks(kBlockRows), [&](std::int64_t item, int thread) noexcept {
    const RowBlock block = storage.block(item, kBlockRows);
    kernels_.linear({.weight = block.part,
                     .begin = block.begin,
                     .rows = block.rows,
                     .x = x,
                     .x_stride = weight.in,
                     .m = rows,
                     .out = out + block.column,
                     .out_stride = weight.out,
                     .add = add,
                     .scratch = scratch + thread * scratch_floats});
  });
}

void CpuOps::embed(const Weight& table, std::span<const std::int32_t> tokens, Tensor& x) {
  const QuantRows& rows = matrix(table).parts().front();
  for (const std::int32_t token : tokens) LILY_CHECK(token >= 0 && token < rows.out);
  LILY_CHECK(x.rows == static_cast<std::int64_t>(tokens.size()) && x.cols == rows.in);
  float* out = values(x);
  for_rows(x.rows, [&](std::int64_t row) { kernels_.dequantize(rows, tokens[row], out + row * x.cols); });
}

void CpuOps::project(const Tensor& x, const Vector& norm, const Weight& weight, Tensor& out) {
  LILY_CHECK(x.cols == weight.in && out.cols == weight.out && out.rows == x.rows && norm.size == x.cols);
  float* normed = normed_.get<float>(x.rows * x.cols);
  for_rows(x.rows, [&](std::int64_t row) {
    kernels_.rms_norm(values(x) + row * x.cols, values(norm), config_.rms_norm_eps, 1.0F, x.cols,
                      normed + row * x.cols);
  });
  linear(normed, x.rows, weight, values(out), false);
}

void CpuOps::project_add(const Tensor& in, const Weight& weight, Tensor& x) {
  LILY_CHECK(in.cols == weight.in && x.cols == weight.out && x.rows == in.rows);
  linear(values(in), in.rows, weight, values(x), true);
}

void CpuOps::lm_head(const Tensor& x, const Vector& norm, const Weight& head, std::span<const std::int64_t> rows,
                     Tensor& logits) {
  const auto count = static_cast<std::int64_t>(rows.size());
  LILY_CHECK(x.cols == head.in && logits.cols == head.out && logits.rows == count);
  float* normed = normed_.get<float>(count * x.cols);
  for_rows(count, [&](std::int64_t i) {
    kernels_.rms_norm(values(x) + rows[i] * x.cols, values(norm), config_.rms_norm_eps, 1.0F, x.cols,
                      normed + i * x.cols);
  });
  linear(normed, count, head, values(logits), false);
}

}  // namespace lily::cpu
