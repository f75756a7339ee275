// GpuOps for many rows: projections and the token mixers of prefill. Activations are bf16; what goes into a product is
// in operand order (kernels/operand.h).
#include <algorithm>

#include "ops/gpu/views.h"

namespace lily::gpu {
namespace {

/// Rows and columns of a product's tile.
struct Tiling {
  std::int64_t rows, columns;
  Extent groups(std::int64_t m, std::int64_t n) const { return {groups_of(n, columns), groups_of(m, rows)}; }
};

constexpr Tiling kTiling{32, 64}, kMmaTiling{128, 128}, kFlatMmaTiling{32, 128};
constexpr std::int64_t kChunkedDelta = 32;  // rows from which chunks are faster than the scan

/// Up to so many rows tiles of 32 rows are faster than tiles of 128; the router has few columns, and so few tiles.
constexpr std::int64_t kFlatRows = 48, kFlatRouterRows = 2048;

}  // namespace

/// In memory that the host may write at once: the launches that read it last are done.
View<const std::uint32_t> GpuOps::token_ids(std::span<const std::int32_t> tokens) {
  token_ids_[token_ids_in_use_].last_use = device_.submit();
  token_ids_in_use_ = (token_ids_in_use_ + 1) % token_ids_.size();
  TokenIds& ids = token_ids_[token_ids_in_use_];
  device_.wait(ids.last_use);
  if (ids.buffer == nullptr || ids.buffer->size() < tokens.size_bytes()) {
    ids.buffer = device_.allocate(std::max<std::size_t>(tokens.size_bytes(), 256), Memory::kShared);
  }
  std::copy(tokens.begin(), tokens.end(), ids.buffer->host_as<std::int32_t>().begin());
  return ids.buffer->view<std::uint32_t>().part(0, tokens.size());
}

std::shared_ptr<Buffer> GpuOps::normed_rows(const Tensor& x, const Vector& norm) {
  auto n = pool_->take(size(x.rows * x.cols) * 2);
  device_.dispatch(kernels::norm_rows_256, {.groups = {unsigned(x.rows)}}, floats(x), values(norm), n->view<bfloat>(),
                   NormRows{u32(x.cols), config_.rms_norm_eps});
  return n;
}

/// The matrix as products of many rows take it: its codes, or bf16 made of them just before.
ExpandedMatrix GpuOps::expanded(const Matrix& m) {
  if (options_.dequantise_in_products) return {nullptr, views(m)};
  const std::size_t values = m.scales->size() / 2 * 64;
  ExpandedMatrix whole{pool_->take(values * 2), views(m)};
  device_.dispatch(m.bits == 4 ? kernels::expand_weights_q4 : kernels::expand_weights_q8,
                   {.groups = {static_cast<unsigned>((values / 8 + 255) / 256)}}, whole.views.codes, whole.views.scales,
                   whole.views.biases, whole.weights->view<uint>(), static_cast<uint>(values / 8));
  whole.views.codes = whole.weights->view<uint>();
  return whole;
}

void GpuOps::project_rows(const Tensor& x, const Vector& norm, const Matrix& weight, Tensor& out) {
  LILY_CHECK(weight.bits == 4);
  const auto n = normed_rows(x, norm);
  give_memory(out, Format::kBFloat16);
  const bool flat = x.rows <= kFlatRows, codes = options_.dequantise_in_products;
  const Tiling tiling = !mma_ ? kTiling : flat ? kFlatMmaTiling : kMmaTiling;
  const auto& entry = !mma_  ? (codes ? kernels::project_rows_q4 : kernels::project_rows_bf16)
                      : flat ? (codes ? kernels::project_rows_q4_mma_32 : kernels::project_rows_bf16_mma_32)
                             : (codes ? kernels::project_rows_q4_mma_128 : kernels::project_rows_bf16_mma_128);
  const ExpandedMatrix matrix = expanded(weight);
  const MatrixViews& w = matrix.views;
  device_.dispatch(entry, {.groups = tiling.groups(x.rows, weight.out), .weight_bytes = weight.bytes()}, w.codes,
                   w.scales, w.biases, n->view<bfloat>(), activations(out).buffer->view<bfloat>(),
                   ProjectRows{u32(x.rows), u32(weight.out), u32(weight.in)});
}

void GpuOps::router_rows(const Buffer& n, const Matrix& router, std::int64_t rows, const Buffer& logits) {
  const bool flat = rows <= kFlatRouterRows, codes = options_.dequantise_in_products;
  const Tiling tiling = !mma_ ? kTiling : flat ? kFlatMmaTiling : kMmaTiling;
  const auto& entry = !mma_ ? (codes ? kernels::project_rows_q8_float : kernels::project_rows_bf16_float)
                      : flat
                          ? (codes ? kernels::project_rows_q8_float_mma_32 : kernels::project_rows_bf16_float_mma_32)
                          : (codes ? kernels::project_rows_q8_float_mma_128 : kernels::project_rows_bf16_float_mma_128);
  const ExpandedMatrix matrix = expanded(router);
  const MatrixViews& w = matrix.views;
  device_.dispatch(entry, {.groups = tiling.groups(rows, router.out), .weight_bytes = router.bytes()}, w.codes,
                   w.scales, w.biases, n.view<bfloat>(), logits.view<float>(),
                   ProjectRows{u32(rows), u32(router.out), u32(router.in)});
}

void GpuOps::project_add_rows(const Activations& in, const Matrix& weight, Tensor& x) {
  LILY_CHECK(weight.bits == 4 && in.format == Format::kBFloat16 && in.operand_order);
  const bool flat = x.rows <= kFlatRows, codes = options_.dequantise_in_products;
  const Tiling tiling = !mma_ ? kTiling : flat ? kFlatMmaTiling : kMmaTiling;
  const auto& entry = !mma_  ? (codes ? kernels::project_add_rows_q4 : kernels::project_add_rows_bf16)
                      : flat ? (codes ? kernels::project_add_rows_q4_mma_32 : kernels::project_add_rows_bf16_mma_32)
                             : (codes ? kernels::project_add_rows_q4_mma_128 : kernels::project_add_rows_bf16_mma_128);
  const ExpandedMatrix matrix = expanded(weight);
  const MatrixViews& w = matrix.views;
  device_.dispatch(entry, {.groups = tiling.groups(x.rows, weight.out), .weight_bytes = weight.bytes()}, w.codes,
                   w.scales, w.biases, in.buffer->view<bfloat>(), floats(x),
                   ProjectRows{u32(x.rows), u32(weight.out), u32(weight.in)});
}

namespace {

/// The delta rule by chunks of 64 tokens: the factors of all chunks at once, then from chunk to chunk.
void delta_chunks(Device& device, BufferPool& pool, View<bfloat> qkv, View<float> gates, View<float> state,
                  View<bfloat> y, const DeltaRows& p) {
  const unsigned chunks = groups_of(p.rows, kChunk);
  const std::size_t count = std::size_t{chunks} * p.value_heads;
  const auto factors = pool.take(count * sizeof(DeltaFactors)), decays = pool.take(count * sizeof(DeltaDecays));
  device.dispatch(kernels::delta_prepare_mma_128, {.groups = {chunks, p.value_heads}}, qkv, gates,
                  factors->view<DeltaFactors>(), decays->view<DeltaDecays>(), p);
  device.dispatch(kernels::delta_chunks_mma_128, {.groups = {kDelta / 32, p.value_heads}}, qkv,
                  factors->view<DeltaFactors>(), decays->view<DeltaDecays>(), state, y, p);
}

}  // namespace

void GpuOps::gated_delta_rows(const Tensor& projected, const GatedDeltaWeights& weights, std::int64_t layer,
                              Batch batch, Tensor& out) {
  const std::int64_t heads = config_.linear_num_value_heads, width = config_.linear_value_head_dim;
  const std::int64_t channels = config_.conv_channels(), value_rows = config_.value_rows();
  const bool wide = width == 128;
  const GpuOptions::DeltaRule rule = options_.delta_rule;
  const auto qkv = pool_->take(size(projected.rows * channels) * 2),
             y = pool_->take(size(projected.rows * value_rows) * 2);
  const auto gates = pool_->take(size(projected.rows * heads * 2) * 4);
  give_memory(out, Format::kBFloat16);
  activations(out).operand_order = true;
  for (const Segment& segment : batch) {
    const auto& state = static_cast<const State&>(*segment.state);
    const DeltaRows p{u32(segment.rows), u32(segment.position), u32(config_.linear_num_key_heads),
                      u32(heads),        u32(projected.cols),   config_.rms_norm_eps};
    const auto part = [&](const Buffer& buffer, std::int64_t columns) {
      return buffer.view<bfloat>().part(size(segment.first_row * columns), size(segment.rows * columns));
    };
    const View<bfloat> in = part(*activations(projected).buffer, projected.cols), mixed = part(*qkv, channels);
    const View<float> own_gates =
        gates->view<float>().part(size(segment.first_row * heads * 2), size(segment.rows * heads * 2));
    device_.dispatch(wide ? kernels::conv_rows_128 : kernels::conv_rows_64,
                     {.groups = {groups_of(channels, 1024), groups_of(segment.rows, 8)}}, in, values(weights.conv1d),
                     state.conv_ring(layer), mixed, p);
    device_.dispatch(kernels::conv_ring_256,
                     {.groups = {groups_of(channels, 256), unsigned(std::min<std::int64_t>(segment.rows, 4))}}, in,
                     state.conv_ring(layer), u32(channels), p);
    device_.dispatch(kernels::gate_rows_128, {.groups = {groups_of(segment.rows * heads, 128)}}, in,
                     values(weights.A_log), values(weights.dt_bias), own_gates, p);
    if (mma_ && wide && rule == GpuOptions::DeltaRule::kChunks && segment.rows >= kChunkedDelta) {
      delta_chunks(device_, *pool_, mixed, own_gates, state.delta_state(layer), part(*y, value_rows), p);
    } else {
      const auto& scan = rule == GpuOptions::DeltaRule::kBlockScan
                             ? (wide ? kernels::block_delta_rows_128 : kernels::block_delta_rows_64)
                             : (wide ? kernels::delta_rows_128 : kernels::delta_rows_64);
      device_.dispatch(scan, {.groups = {unsigned(width / 32), unsigned(heads)}}, mixed, own_gates,
                       state.delta_state(layer), part(*y, value_rows), p);
    }
    device_.dispatch(wide ? kernels::gated_norm_rows_128 : kernels::gated_norm_rows_64,
                     {.groups = {groups_of(value_rows, 2048), unsigned(segment.rows)}}, part(*y, value_rows), in,
                     values(weights.norm), part(*activations(out).buffer, value_rows), p);
  }
}

void GpuOps::attention_rows(const Tensor& projected, const AttentionWeights& weights, std::int64_t layer, Batch batch,
                            Tensor& out) {
  const std::int64_t heads = config_.num_attention_heads, kv_heads = config_.num_key_value_heads;
  const std::int64_t width = config_.head_dim;
  const bool wide = width == 256, on_tensor_cores = mma_ && wide;
  const std::int64_t packed = packed_heads(), tokens = (on_tensor_cores ? 128 : 32) / packed;  // of a threadgroup
  const auto q = pool_->take(size(projected.rows * heads * width) * 2);
  give_memory(out, Format::kBFloat16);
  activations(out).operand_order = true;
  for (const Segment& segment : batch) {
    auto& state = static_cast<State&>(*segment.state);
    state.reserve(segment.position + segment.rows);
    const AttentionRows p{u32(segment.rows), u32(segment.position), u32(heads),           u32(kv_heads),
                          u32(packed),       u32(projected.cols),   cache_strides(state), config_.rms_norm_eps};
    const auto part = [&](const Buffer& buffer, std::int64_t columns) {
      return buffer.view<bfloat>().part(size(segment.first_row * columns), size(segment.rows * columns));
    };
    const View<bfloat> in = part(*activations(projected).buffer, projected.cols), own_q = part(*q, heads * width);
    device_.dispatch(wide ? kernels::attention_prepare_256 : kernels::attention_prepare_128,
                     {.groups = {groups_of(heads + 2 * kv_heads, 4), unsigned(segment.rows)}}, in,
                     values(weights.q_norm), values(weights.k_norm), state.turns().view<float>(), own_q,
                     cache_view(state.keys(layer)), cache_view(state.values(layer)), p);
    device_.dispatch(on_tensor_cores ? kernels::attention_rows_mma_256
                     : wide          ? kernels::attention_rows_256
                                     : kernels::attention_rows_128,
                     {.groups = {groups_of(segment.rows, tokens), unsigned(heads / packed)}}, own_q,
                     cache_view(state.keys(layer)), cache_view(state.values(layer)), in,
                     part(*activations(out).buffer, heads * width), p);
  }
}

}  // namespace lily::gpu
