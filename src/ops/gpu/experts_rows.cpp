// GpuOps: the mixture of experts for many rows. Routing never leaves the device: counts, offsets, sorted positions and
// the list of tiles are made by kernels, and the two grouped products run over fixed-size row tiles.
#include <algorithm>

#include "ops/gpu/views.h"

namespace lily::gpu {
namespace {

using UpEntry = std::remove_cvref_t<decltype(kernels::experts_up_rows_q4)>;
using DownEntry = std::remove_cvref_t<decltype(kernels::experts_down_rows_q4)>;

/// The two products, for tiles of so many rows.
struct ExpertsEntries {
  const UpEntry& up;
  const DownEntry& down;
};

ExpertsEntries experts_entries(bool mma, bool codes, std::int64_t rows) {
  namespace k = kernels;
  if (!mma && !codes) return {k::experts_up_rows_bf16, k::experts_down_rows_bf16};
  if (!mma && rows == 16) return {k::experts_up_rows_q4_16, k::experts_down_rows_q4_16};
  if (!mma) return {k::experts_up_rows_q4, k::experts_down_rows_q4};
  if (!codes && rows == 32) return {k::experts_up_rows_bf16_mma_32, k::experts_down_rows_bf16_mma_32};
  if (!codes && rows == 64) return {k::experts_up_rows_bf16_mma_64, k::experts_down_rows_bf16_mma_64};
  if (!codes) return {k::experts_up_rows_bf16_mma_128, k::experts_down_rows_bf16_mma_128};
  if (rows == 16) return {k::experts_up_rows_q4_mma_16, k::experts_down_rows_q4_mma_16};
  if (rows == 32) return {k::experts_up_rows_q4_mma_32, k::experts_down_rows_q4_mma_32};
  if (rows == 64) return {k::experts_up_rows_q4_mma_64, k::experts_down_rows_q4_mma_64};
  return {k::experts_up_rows_q4_mma_128, k::experts_down_rows_q4_mma_128};
}

}  // namespace

/// `load`: rows that an expert will get on average.
std::int64_t GpuOps::expert_tile_rows(std::int64_t load) const {
  if (options_.expert_tile_rows != 0) {
    const std::int64_t least = options_.dequantise_in_products ? 16 : 32, most = mma_ ? 128 : 32;
    return std::clamp(options_.expert_tile_rows, least, most);
  }
  return !mma_ || load < 40 ? 32 : load < 64 ? 64 : 128;
}

/// What plan_experts and scatter_experts do on the device.
void GpuOps::route_on_host(const ExpertRows& plan, const Buffer& ids, Buffer& tiles, Buffer& pair_at,
                           Buffer& position_of) {
  const std::size_t pairs = std::size_t{plan.rows} * plan.count;
  std::vector<uint> chosen(pairs), first(plan.experts + 2), pair(pairs), position(pairs);
  device_.read(ids, 0, std::as_writable_bytes(std::span(chosen)));
  for (const uint expert : chosen) ++first[expert + 1];
  for (uint expert = 0; expert < plan.experts; ++expert) first[expert + 1] += first[expert];
  first[plan.experts + 1] = first[plan.experts] + plan.rows;
  std::vector<ExpertTile> list;
  for (uint expert = 0; expert <= plan.experts; ++expert)
    for (uint at = first[expert]; at < first[expert + 1]; at += plan.tile_rows)
      list.push_back({expert, at, std::min(plan.tile_rows, first[expert + 1] - at)});
  list.resize(most_tiles(plan.rows, plan.experts, plan.count, plan.tile_rows));
  for (uint i = 0; i < pairs; ++i) pair[position[i] = first[chosen[i]]++] = i;
  device_.write(tiles, 0, std::as_bytes(std::span(list)));
  device_.write(pair_at, 0, std::as_bytes(std::span(pair)));
  device_.write(position_of, 0, std::as_bytes(std::span(position)));
}

void GpuOps::experts_rows(const MoeWeights& weights, Tensor& x) {
  const auto& e = static_cast<const Experts&>(*weights.experts);
  const Matrix& router = matrix_of(weights.router);
  if (router.bits != 8) throw_error("the GPU has no kernel for a router of {} bits, expected 8", router.bits);
  const std::int64_t rows = x.rows, count = config_.num_experts_per_tok, pairs = rows * count;
  const std::int64_t hidden = config_.hidden_size, width = config_.moe_intermediate_size;
  const std::int64_t shared_width = config_.shared_expert_intermediate_size, stride = std::max(width, shared_width);
  const std::int64_t tile_rows = expert_tile_rows(pairs / e.count);
  const ExpertRows plan{u32(rows), u32(e.count), u32(count), u32(tile_rows)};
  const ExpertsRows p{plan, u32(hidden), u32(width), u32(shared_width), u32(stride)};
  const unsigned tiles = most_tiles(plan.rows, plan.experts, plan.count, plan.tile_rows);

  const auto n = normed_rows(x, weights.post_attention_layernorm);
  const auto logits = pool_->take(size(rows * router.out) * 4);
  const auto ids = pool_->take(size(pairs) * 4), shares = pool_->take(size(pairs) * 4);
  const auto shared_shares = pool_->take(size(rows) * 4);
  const auto counts = pool_->take(size(e.count) * 4), next_position = pool_->take(size(e.count) * 4);
  const auto tile_list = pool_->take(tiles * sizeof(ExpertTile));
  const auto pair_at = pool_->take(size(pairs) * 4), position_of = pool_->take(size(pairs) * 4);
  const auto act = pool_->take(size((pairs + rows) * stride) * 2), out = pool_->take(size((pairs + rows) * hidden) * 2);

  device_.dispatch(kernels::zero_words, {}, counts->view<uint>().part(0, size(e.count)), u32(e.count));
  router_rows(*n, router, rows, *logits);
  device_.dispatch(kernels::route_rows_4, {.groups = {groups_of(rows, 4)}}, logits->view<float>(), ids->view<uint>(),
                   shares->view<float>(), shared_shares->view<float>(), counts->view<atomic_uint>(), plan);
  if (options_.routing_on_device) {
    device_.dispatch(kernels::plan_experts_288, {}, counts->view<uint>(), next_position->view<uint>(),
                     tile_list->view<ExpertTile>(), plan);
    device_.dispatch(kernels::scatter_experts_256, {.groups = {groups_of(pairs, 256)}}, ids->view<uint>(),
                     next_position->view<atomic_uint>(), pair_at->view<uint>(), position_of->view<uint>(), plan);
  } else {
    route_on_host(plan, *ids, *tile_list, *pair_at, *position_of);
  }
  const ExpandedMatrix gate = expanded(e.gate), up = expanded(e.up), down = expanded(e.down);
  const ExpandedMatrix shared_gate = expanded(e.shared_gate), shared_up = expanded(e.shared_up),
                       shared_down = expanded(e.shared_down);
  const MatrixViews &g = gate.views, &u = up.views, &d = down.views;
  const MatrixViews &sg = shared_gate.views, &su = shared_up.views, &sd = shared_down.views;
  const bool codes = options_.dequantise_in_products;
  const ExpertsEntries entries = experts_entries(mma_, codes, tile_rows);
  device_.dispatch(entries.up,
                   {.groups = {groups_of(stride, mma_ ? 64 : 32), tiles},
                    .weight_bytes = e.gate.bytes() + e.up.bytes() + e.shared_gate.bytes() + e.shared_up.bytes()},
                   g.codes, g.scales, g.biases, u.codes, u.scales, u.biases, sg.codes, sg.scales, sg.biases, su.codes,
                   su.scales, su.biases, tile_list->view<ExpertTile>(), pair_at->view<uint>(), n->view<bfloat>(),
                   act->view<bfloat>(), p);
  device_.dispatch(
      entries.down,
      {.groups = {groups_of(hidden, mma_ ? 128 : 64), tiles}, .weight_bytes = e.down.bytes() + e.shared_down.bytes()},
      d.codes, d.scales, d.biases, sd.codes, sd.scales, sd.biases, tile_list->view<ExpertTile>(), act->view<bfloat>(),
      out->view<bfloat>(), p);
  device_.dispatch(kernels::experts_combine_256, {.groups = {unsigned(rows)}}, out->view<bfloat>(),
                   position_of->view<uint>(), shares->view<float>(), shared_shares->view<float>(), floats(x),
                   ExpertsCombine{plan, u32(hidden)});
}

}  // namespace lily::gpu
