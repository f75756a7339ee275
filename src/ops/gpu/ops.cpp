// GpuOps: each op of the vocabulary, by the number of rows.
#include "ops/gpu/decode_loop.h"
#include "ops/gpu/views.h"

namespace lily::gpu {

void GpuOps::embed(const Weight& table, std::span<const std::int32_t> tokens, Tensor& x) {
  const Matrix& m = matrix_of(table);
  LILY_CHECK(m.bits == 4 && static_cast<std::int64_t>(tokens.size()) == x.rows);
  const Embed parameters{u32(m.in), u32(m.out)};
  const MatrixViews w = views(m);
  if (tokens[0] == kDrawnToken) {
    LILY_CHECK(recording_ != nullptr);
    device_.dispatch(kernels::embed_drawn_q4, {}, w.codes, w.scales, w.biases, recording_->tokens().view<uint>(),
                     recording_->state_step().view<StepState>(), write_floats(x), parameters);
    return;
  }
  device_.dispatch(kernels::embed_rows_q4, {.groups = {unsigned(tokens.size())}}, w.codes, w.scales, w.biases,
                   token_ids(tokens), write_floats(x), parameters);
}

void GpuOps::project(const Tensor& x, const Vector& norm, const Weight& weight, Tensor& out) {
  if (x.rows == 1) {
    project_step(floats(x), norm, matrix_of(weight), write_floats(out));
  } else {
    project_rows(x, norm, matrix_of(weight), out);
  }
}

void GpuOps::project_add(const Tensor& in, const Weight& weight, Tensor& x) {
  if (x.rows == 1) {
    project_add_step(activations(in), matrix_of(weight), floats(x));
  } else {
    project_add_rows(activations(in), matrix_of(weight), x);
  }
}

void GpuOps::gated_delta(const Tensor& projected, const GatedDeltaWeights& weights, std::int64_t layer, Batch batch,
                         Tensor& out) {
  if (projected.rows > 1) return gated_delta_rows(projected, weights, layer, batch, out);
  set_position(batch[0]);
  gated_delta_step(projected, weights, layer, batch[0], out);
}

void GpuOps::attention(const Tensor& projected, const AttentionWeights& weights, std::int64_t layer, Batch batch,
                       Tensor& out) {
  if (projected.rows > 1) return attention_rows(projected, weights, layer, batch, out);
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
  if (x.rows == 1) {
    experts_step(weights, x);
  } else {
    experts_rows(weights, x);
  }
}

void GpuOps::lm_head(const Tensor& x, const Vector& norm, const Weight& head, std::span<const std::int64_t> rows,
                     Tensor& logits) {
  const auto hidden = size(x.cols), vocab = size(logits.cols);
  const View<float> all = floats(x), out = write_floats(logits);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    project_step(all.part(size(rows[i]) * hidden, hidden), norm, matrix_of(head), out.part(i * vocab, vocab));
  }
}

}  // namespace lily::gpu
