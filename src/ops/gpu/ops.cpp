// GpuOps: each op of the vocabulary, by the number of rows.
#include "kernels/kernels.h"
#include "ops/gpu/decode_loop.h"

namespace lily::gpu {

void GpuOps::embed(const Weight& table, std::span<const std::int32_t> tokens, Tensor& x) {
  const Matrix& m = matrix_of(table);
  LILY_CHECK(m.bits == 4 && static_cast<std::int64_t>(tokens.size()) == x.rows);
  const Embed parameters{static_cast<uint>(m.in), static_cast<uint>(m.out)};
  const View<const uint> codes = m.codes->view<uint>();
  const View<const bfloat> scales = m.scales->view<bfloat>(), biases = m.biases->view<bfloat>();
  if (tokens[0] == kDrawnToken) {
    LILY_CHECK(recording_ != nullptr);
    device_.dispatch(kernels::embed_drawn_q4, {}, codes, scales, biases, recording_->tokens().view<uint>(),
                     recording_->state_step().view<StepState>(), write_floats(x), parameters);
    return;
  }
  const auto ids = pool_->take(tokens.size_bytes());
  device_.write(*ids, 0, std::as_bytes(tokens));
  device_.dispatch(kernels::embed_rows_q4, {.groups = {static_cast<unsigned>(tokens.size())}}, codes, scales, biases,
                   ids->view<uint>(), write_floats(x), parameters);
}

void GpuOps::project(const Tensor& x, const Vector& norm, const Weight& weight, Tensor& out) {
  LILY_CHECK(x.rows == 1);
  project_step(floats(x), norm, matrix_of(weight), write_floats(out));
}

void GpuOps::project_add(const Tensor& in, const Weight& weight, Tensor& x) {
  LILY_CHECK(x.rows == 1);
  project_add_step(activations(in), matrix_of(weight), floats(x));
}

void GpuOps::gated_delta(const Tensor& projected, const GatedDeltaWeights& weights, std::int64_t layer, Batch batch,
                         Tensor& out) {
  LILY_CHECK(projected.rows == 1);
  set_position(batch[0]);
  gated_delta_step(projected, weights, layer, batch[0], out);
}

void GpuOps::attention(const Tensor& projected, const AttentionWeights& weights, std::int64_t layer, Batch batch,
                       Tensor& out) {
  LILY_CHECK(projected.rows == 1);
  set_position(batch[0]);
  attention_step(projected, weights, layer, batch[0], out);
}

/// Outside of a decode loop the host says where the timeline stands. Kernels read it before they wait for the launch
/// before them, so it is not left to a launch.
void GpuOps::set_position(const Segment& segment) {
  auto& state = static_cast<State&>(*segment.state);
  state.reserve(segment.position + segment.rows);
  if (recording_ != nullptr || state.placed_at() == segment.position) return;
  const StepState step{static_cast<uint>(segment.position), 0, 0};
  device_.write(state.step(), 0, std::as_bytes(std::span(&step, 1)));
  state.place_at(segment.position);
}

void GpuOps::mixture_of_experts(const MoeWeights& weights, Tensor& x) {
  LILY_CHECK(x.rows == 1);
  experts_step(weights, x);
}

void GpuOps::lm_head(const Tensor& x, const Vector& norm, const Weight& head, std::span<const std::int64_t> rows,
                     Tensor& logits) {
  LILY_CHECK(rows.size() == 1);
  const auto hidden = static_cast<std::size_t>(x.cols);
  const View<float> row = floats(x).part(static_cast<std::size_t>(rows[0]) * hidden, hidden);
  project_step(row, norm, matrix_of(head), write_floats(logits));
}

}  // namespace lily::gpu
