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
  if (!options_.fused_delta) return gated_delta_parts_step(projected, weights, layer, segment, out);
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

/// Query heads that share one reading of the cache.
std::int64_t GpuOps::packed_heads() const {
  return options_.packed_heads ? config_.num_attention_heads / config_.num_key_value_heads : 1;
}

/// Splits of one key/value head's cache: as many as fill the GPU, but none for fewer than 16 tokens of room; or blocks.
GpuOps::Splits GpuOps::attention_splits(std::int64_t room) const {
  constexpr std::int64_t kLong = 32768, kTokens = 64;  // blocks are a multiple of what kernels take at once
  if (options_.attention_block > 0 && room >= kLong) {
    const std::int64_t least = (room + kMostSplits - 1) / kMostSplits;
    const std::int64_t span = (std::max(options_.attention_block, least) + kTokens - 1) / kTokens * kTokens;
    return {(room + span - 1) / span, span};
  }
  const std::int64_t rows = config_.num_attention_heads / packed_heads();
  return {std::clamp<std::int64_t>(options_.attention_groups / rows, 1, (room + 15) / 16), 0};
}

void GpuOps::attention_step(const Tensor& projected, const AttentionWeights& weights, std::int64_t layer,
                            const Segment& segment, Tensor& out) {
  const auto& state = static_cast<const State&>(*segment.state);
  const std::int64_t heads = config_.num_attention_heads, kv_heads = config_.num_key_value_heads;
  const std::int64_t width = config_.head_dim, packed = packed_heads();
  const auto [splits, span] = attention_splits(state.capacity());
  const auto part_o = pool_->take(size(heads * splits * width) * 4);
  const auto part_ml = pool_->take(size(heads * splits) * 8);
  const bool fused = options_.fused_query_key;
  const AttentionStep p{u32(heads),  u32(kv_heads),   u32(splits),          u32(span),
                        u32(packed), fused ? 0U : 1U, cache_strides(state), config_.rms_norm_eps};
  const View<float> in = floats(projected);
  const auto prepared = fused ? nullptr : pool_->take(size(projected.cols) * 4);
  const View<float> queries = fused ? in : prepared->view<float>().part(0, size(projected.cols));
  if (!fused) {
    device_.dispatch(width == 128 ? kernels::attention_prepare_step_128 : kernels::attention_prepare_step_256,
                     {.groups = {groups_of(heads + 2 * kv_heads, 4)}}, in, values(weights.q_norm),
                     values(weights.k_norm), state.turns().view<float>(), state.step().view<StepState>(), queries, p);
  }
  const auto& step = width == 128 ? kernels::attention_step_128
                     : mma_       ? kernels::attention_step_mma_256
                                  : kernels::attention_step_256;
  device_.dispatch(step, {.groups = {unsigned(splits), unsigned(heads / packed)}}, queries, values(weights.q_norm),
                   values(weights.k_norm), state.turns().view<float>(), state.step().view<StepState>(),
                   cache_view(state.keys(layer)), cache_view(state.values(layer)), part_o->view<float>(),
                   part_ml->view<float>(), p);
  const auto& merge = width == 256 ? kernels::attention_merge_256 : kernels::attention_merge_128;
  device_.dispatch(merge, {.groups = {unsigned(width / 64), unsigned(heads)}}, part_o->view<float>(),
                   part_ml->view<float>(), in, write_floats(out), AttentionMerge{u32(splits)});
}

void GpuOps::experts_step(const MoeWeights& weights, Tensor& x) {
  const auto& experts = static_cast<const Experts&>(*weights.experts);
  const Matrix& router = matrix_of(weights.router);
  const std::int64_t hidden = config_.hidden_size, shared_width = config_.shared_expert_intermediate_size;
  if (router.bits != 8) throw_error("the GPU has no kernel for a router of {} bits, expected 8", router.bits);
  const auto logits = pool_->take(size(router.out) * 4), shared = pool_->take(size(shared_width) * 4);
  const auto act = pool_->take(size(config_.num_experts_per_tok * config_.moe_intermediate_size) * 4);
  const MatrixViews r = views(router), sg = views(experts.shared_gate), su = views(experts.shared_up);
  const View<float> residual = floats(x);
  const auto& route = !real_experts() ? kernels::route_step_any
                      : mma_          ? kernels::route_step_2048_mma
                                      : kernels::route_step_2048;
  device_.dispatch(route,
                   {.groups = {tiles(router.out) + tiles(shared_width)},
                    .weight_bytes = router.bytes() + experts.shared_gate.bytes() + experts.shared_up.bytes()},
                   r.codes, r.scales, r.biases, sg.codes, sg.scales, sg.biases, su.codes, su.scales, su.biases,
                   residual, values(weights.post_attention_layernorm), logits->view<float>(), shared->view<float>(),
                   RouteStep{u32(experts.count), u32(hidden), u32(shared_width), config_.rms_norm_eps});
  experts_up_step(weights, residual, logits->view<float>(), act->view<float>());
  experts_down_step(weights, residual, logits->view<float>(), act->view<float>(), shared->view<float>());
}

bool GpuOps::real_experts() const {
  return config_.hidden_size == 2048 && config_.moe_intermediate_size == 512 &&
         config_.shared_expert_intermediate_size == 512;
}

/// Of a stack of all experts, what one token's experts have.
std::size_t GpuOps::chosen_bytes(const Matrix& stack) const {
  return stack.bytes() / size(config_.num_experts) * size(config_.num_experts_per_tok);
}

void GpuOps::experts_up_step(const MoeWeights& weights, View<float> x, View<float> logits, View<float> act) {
  const auto& experts = static_cast<const Experts&>(*weights.experts);
  const std::int64_t count = config_.num_experts_per_tok, hidden = config_.hidden_size;
  const std::int64_t width = config_.moe_intermediate_size;
  const bool real = real_experts();
  const MatrixViews g = views(experts.gate), up = views(experts.up);
  const View<const float> norm = values(weights.post_attention_layernorm);
  const ExpertsUpStep p{u32(experts.count), u32(count), u32(hidden), u32(width), config_.rms_norm_eps};
  const Extent groups{groups_of(width, real && mma_ ? 32 : 16), unsigned(count)};
  if (options_.fused_experts_up) {
    const auto& gate_up = !real  ? kernels::experts_up_step_q4
                          : mma_ ? kernels::experts_up_step_q4_2048_mma
                                 : kernels::experts_up_step_q4_2048;
    device_.dispatch(gate_up, {.groups = groups, .weight_bytes = chosen_bytes(experts.gate) + chosen_bytes(experts.up)},
                     g.codes, g.scales, g.biases, up.codes, up.scales, up.biases, x, norm, logits, act, p);
    return;
  }
  const auto& one = !real  ? kernels::experts_matrix_step_q4
                    : mma_ ? kernels::experts_matrix_step_q4_2048_mma
                           : kernels::experts_matrix_step_q4_2048;
  const std::size_t values = size(count * width);
  const auto ups = pool_->take(values * 4);
  device_.dispatch(one, {.groups = groups, .weight_bytes = chosen_bytes(experts.gate)}, g.codes, g.scales, g.biases, x,
                   norm, logits, act, p);
  device_.dispatch(one, {.groups = groups, .weight_bytes = chosen_bytes(experts.up)}, up.codes, up.scales, up.biases, x,
                   norm, logits, ups->view<float>(), p);
  device_.dispatch(kernels::activate_step_256, {.groups = {groups_of(count * width, 256)}}, act, ups->view<float>(),
                   static_cast<uint>(values));
}

void GpuOps::experts_down_step(const MoeWeights& weights, View<float> x, View<float> logits, View<float> act,
                               View<float> shared) {
  const auto& experts = static_cast<const Experts&>(*weights.experts);
  const std::int64_t count = config_.num_experts_per_tok, hidden = config_.hidden_size;
  const bool real = real_experts();
  const MatrixViews d = views(experts.down), sd = views(experts.shared_down);
  const std::size_t bytes = chosen_bytes(experts.down) + experts.shared_down.bytes();
  const ExpertsDownStep p{u32(experts.count), u32(count), u32(hidden), u32(config_.moe_intermediate_size),
                          u32(config_.shared_expert_intermediate_size)};
  if (options_.fused_experts_down) {
    const auto& down = !real  ? kernels::experts_down_step_q4
                       : mma_ ? kernels::experts_down_step_q4_512_mma
                              : kernels::experts_down_step_q4_512;
    device_.dispatch(down, {.groups = {tiles(hidden)}, .weight_bytes = bytes}, d.codes, d.scales, d.biases, sd.codes,
                     sd.scales, sd.biases, logits, act, shared, x, p);
    return;
  }
  const auto& slot = !real  ? kernels::experts_slot_step_q4
                     : mma_ ? kernels::experts_slot_step_q4_512_mma
                            : kernels::experts_slot_step_q4_512;
  const auto out = pool_->take(size((count + 1) * hidden) * 4);
  device_.dispatch(slot, {.groups = {tiles(hidden), unsigned(count + 1)}, .weight_bytes = bytes}, d.codes, d.scales,
                   d.biases, sd.codes, sd.scales, sd.biases, logits, act, shared, out->view<float>(), p);
  device_.dispatch(kernels::experts_combine_step_256, {.groups = {groups_of(hidden, 256)}}, logits, out->view<float>(),
                   x, p);
}

/// gated_delta_step in pieces: conv and norms, the recurrent update, the gated norm.
void GpuOps::gated_delta_parts_step(const Tensor& projected, const GatedDeltaWeights& weights, std::int64_t layer,
                                    const Segment& segment, Tensor& out) {
  const auto& state = static_cast<const State&>(*segment.state);
  const std::int64_t heads = config_.linear_num_value_heads, channels = config_.conv_channels();
  const std::int64_t width = config_.linear_value_head_dim;
  const bool wide = width == 128;
  const GatedDeltaStep p{u32(config_.linear_num_key_heads), u32(heads), config_.rms_norm_eps};
  const View<float> in = floats(projected), result = write_floats(out);
  const auto prepared = pool_->take(size(projected.cols) * 4), y = pool_->take(size(config_.value_rows()) * 4);
  device_.dispatch(wide ? kernels::delta_prepare_step_128 : kernels::delta_prepare_step_64,
                   {.groups = {groups_of(2 * config_.linear_num_key_heads + heads, 4)}}, in, values(weights.conv1d),
                   state.step().view<StepState>(), state.conv_ring(layer), prepared->view<float>(), p);
  device_.dispatch(wide ? kernels::prepared_delta_step_128 : kernels::prepared_delta_step_64,
                   {.groups = {unsigned(width / 32), unsigned(heads)}}, prepared->view<float>(), values(weights.conv1d),
                   values(weights.A_log), values(weights.dt_bias), state.step().view<StepState>(),
                   state.conv_ring(layer), state.delta_state(layer), y->view<float>(), p);
  device_.dispatch(wide ? kernels::gated_norm_step_128 : kernels::gated_norm_step_64, {.groups = {groups_of(heads, 4)}},
                   y->view<float>(), in.part(size(channels), size(config_.value_rows())), values(weights.norm), result,
                   p);
}

}  // namespace lily::gpu
