// GpuOps for one row: the fused launches of a decode step, six a layer.
//
// The gated norm of the delta rule is left to the output projection that follows it (Activations::gates).
#include <algorithm>

#include "ops/gpu/views.h"

namespace lily::gpu {
namespace {

/// Threadgroups for `rows` rows of a matrix, 16 each.
unsigned tiles(std::int64_t rows) {
  return groups_of(rows, 16);
}

using ProjectEntry = std::remove_cvref_t<decltype(kernels::project_step_q4)>;
using ProjectAddEntry = std::remove_cvref_t<decltype(kernels::project_add_step_q4)>;

}  // namespace

void GpuOps::project_step(View<const float> x, const Vector& norm, const Matrix& weight, View<float> out) {
  LILY_CHECK(weight.bits == 4);
  const bool real = weight.in == 2048;
  const std::int64_t layers_widest = 2 * config_.linear_rows();  // what is wider is the head, of many threadgroups
  const ProjectEntry& entry = !real                        ? kernels::project_step_q4
                              : !mma_                      ? kernels::project_step_q4_2048
                              : weight.out > layers_widest ? kernels::head_step_q4_2048_mma
                                                           : kernels::project_step_q4_2048_mma;
  const MatrixViews w = views(weight);
  const std::int64_t rows = real && mma_ ? 48 : 16;  // of a threadgroup
  device_.dispatch(entry, {.groups = {groups_of(weight.out, rows)}, .weight_bytes = weight.bytes()}, w.codes, w.scales,
                   w.biases, x, values(norm), out, ProjectStep{u32(weight.out), u32(weight.in), config_.rms_norm_eps});
}

void GpuOps::project_add_step(const Activations& in, const Matrix& weight, View<float> x) {
  LILY_CHECK(weight.bits == 4);
  const bool real = weight.in == 4096;
  const MatrixViews w = views(weight);
  const Launch launch{.groups = {tiles(weight.out)}, .weight_bytes = weight.bytes()};
  const ProjectStep parameters{u32(weight.out), u32(weight.in), config_.rms_norm_eps};
  const View<const float> input = in.buffer->view<float>().part(0, size(weight.in));
  if (in.gates == nullptr) {
    const ProjectAddEntry& entry = !real  ? kernels::project_add_step_q4
                                   : mma_ ? kernels::project_add_step_q4_4096_mma
                                          : kernels::project_add_step_q4_4096;
    device_.dispatch(entry, launch, w.codes, w.scales, w.biases, input, input, input, x, parameters);
    return;
  }
  const std::int64_t head = config_.linear_value_head_dim;
  const ProjectAddEntry& entry = head == 64 ? kernels::gated_project_add_step_q4_64
                                 : !real    ? kernels::gated_project_add_step_q4_128
                                 : mma_     ? kernels::gated_project_add_step_q4_4096_mma
                                            : kernels::gated_project_add_step_q4_4096;
  const View<const float> z = in.gates->buffer->view<float>(in.gates_offset).part(0, input.count);
  const View<const float> norm = in.norm->values->view<float>();
  device_.dispatch(entry, launch, w.codes, w.scales, w.biases, input, z, norm, x, parameters);
}

void GpuOps::gated_delta_step(const Tensor& projected, const GatedDeltaWeights& weights, std::int64_t layer,
                              const Segment& segment, Tensor& out) {
  const auto& state = static_cast<const State&>(*segment.state);
  const std::int64_t head = config_.linear_value_head_dim;
  const auto& entry = head == 128 ? kernels::gated_delta_step_128 : kernels::gated_delta_step_64;
  device_.dispatch(
      entry, {.groups = {unsigned(head / 32), unsigned(config_.linear_num_value_heads)}}, floats(projected),
      values(weights.conv1d), values(weights.A_log), values(weights.dt_bias), state.step().view<StepState>(),
      state.conv_ring(layer), state.delta_state(layer), write_floats(out),
      GatedDeltaStep{u32(config_.linear_num_key_heads), u32(config_.linear_num_value_heads), config_.rms_norm_eps});
  Activations& mixed = activations(out);
  mixed.gates = std::static_pointer_cast<Activations>(projected.storage);
  mixed.gates_offset = size(config_.conv_channels()) * sizeof(float);
  mixed.norm = std::static_pointer_cast<const Floats>(weights.norm.storage);
}

/// Splits of one key/value head's cache: as many as fill the GPU, but none for fewer than 16 tokens of room.
std::int64_t GpuOps::attention_splits(std::int64_t room) const {
  return std::clamp<std::int64_t>(options_.attention_groups / config_.num_key_value_heads, 1, (room + 15) / 16);
}

void GpuOps::attention_step(const Tensor& projected, const AttentionWeights& weights, std::int64_t layer,
                            const Segment& segment, Tensor& out) {
  const auto& state = static_cast<const State&>(*segment.state);
  const std::int64_t heads = config_.num_attention_heads, kv_heads = config_.num_key_value_heads;
  const std::int64_t width = config_.head_dim, splits = attention_splits(state.capacity());
  const auto part_o = pool_->take(size(heads * splits * width) * 4);
  const auto part_ml = pool_->take(size(heads * splits) * 8);
  const auto& step = width == 128 ? kernels::attention_step_128
                     : mma_       ? kernels::attention_step_mma_256
                                  : kernels::attention_step_256;
  device_.dispatch(step, {.groups = {unsigned(splits), unsigned(kv_heads)}}, floats(projected), values(weights.q_norm),
                   values(weights.k_norm), state.turns().view<float>(), state.step().view<StepState>(),
                   cache_view(state.keys(layer)), cache_view(state.values(layer)), part_o->view<float>(),
                   part_ml->view<float>(), AttentionStep{u32(heads), u32(kv_heads), u32(splits), config_.rms_norm_eps});
  const auto& merge = width == 256 ? kernels::attention_merge_256 : kernels::attention_merge_128;
  device_.dispatch(merge, {.groups = {unsigned(width / 64), unsigned(heads)}}, part_o->view<float>(),
                   part_ml->view<float>(), floats(projected), write_floats(out), AttentionMerge{u32(splits)});
}

void GpuOps::experts_step(const MoeWeights& weights, Tensor& x) {
  const auto& experts = static_cast<const Experts&>(*weights.experts);
  const Matrix& router = matrix_of(weights.router);
  const std::int64_t count = config_.num_experts_per_tok, hidden = config_.hidden_size;
  const std::int64_t width = config_.moe_intermediate_size, shared_width = config_.shared_expert_intermediate_size;
  if (router.bits != 8) throw_error("the GPU has no kernel for a router of {} bits, expected 8", router.bits);
  const bool real = hidden == 2048 && width == 512 && shared_width == 512;
  const auto logits = pool_->take(size(router.out) * 4);
  const auto shared = pool_->take(size(shared_width) * 4);
  const auto act = pool_->take(size(count * width) * 4);
  const MatrixViews r = views(router), g = views(experts.gate), up = views(experts.up), d = views(experts.down);
  const MatrixViews sg = views(experts.shared_gate), su = views(experts.shared_up), sd = views(experts.shared_down);
  const auto share = [&](const Matrix& stack) { return stack.bytes() / size(experts.count) * size(count); };
  const View<float> residual = floats(x);
  const View<const float> norm = values(weights.post_attention_layernorm);
  const float eps = config_.rms_norm_eps;

  const auto& route = !real ? kernels::route_step_any : mma_ ? kernels::route_step_2048_mma : kernels::route_step_2048;
  device_.dispatch(route,
                   {.groups = {tiles(router.out) + tiles(shared_width)},
                    .weight_bytes = router.bytes() + experts.shared_gate.bytes() + experts.shared_up.bytes()},
                   r.codes, r.scales, r.biases, sg.codes, sg.scales, sg.biases, su.codes, su.scales, su.biases,
                   residual, norm, logits->view<float>(), shared->view<float>(),
                   RouteStep{u32(experts.count), u32(hidden), u32(shared_width), eps});
  const auto& gate_up = !real  ? kernels::experts_up_step_q4
                        : mma_ ? kernels::experts_up_step_q4_2048_mma
                               : kernels::experts_up_step_q4_2048;
  device_.dispatch(gate_up,
                   {.groups = {groups_of(width, real && mma_ ? 32 : 16), unsigned(count)},
                    .weight_bytes = share(experts.gate) + share(experts.up)},
                   g.codes, g.scales, g.biases, up.codes, up.scales, up.biases, residual, norm, logits->view<float>(),
                   act->view<float>(), ExpertsUpStep{u32(experts.count), u32(count), u32(hidden), u32(width), eps});
  const auto& down = !real  ? kernels::experts_down_step_q4
                     : mma_ ? kernels::experts_down_step_q4_512_mma
                            : kernels::experts_down_step_q4_512;
  device_.dispatch(down, {.groups = {tiles(hidden)}, .weight_bytes = share(experts.down) + experts.shared_down.bytes()},
                   d.codes, d.scales, d.biases, sd.codes, sd.scales, sd.biases, logits->view<float>(),
                   act->view<float>(), shared->view<float>(), residual,
                   ExpertsDownStep{u32(experts.count), u32(count), u32(hidden), u32(width), u32(shared_width)});
}

}  // namespace lily::gpu
