// Full attention. First every row's keys and values go to the cache and its queries are prepared; then items of some
// rows' queries of one KV head run over ranges of the cache, so that each key and value row is read once for all of
// them.
//
// A row's result is the same to the bit whatever else is in the batch: its context is cut into ranges of kAttendRange
// tokens from position 0, each is computed from scratch, and they are joined from left to right. Many rows walk through
// their ranges one after another; few rows take each range as an item of its own and join them afterwards.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>

#include "ops/cpu/ops_impl.h"
#include "support/error.h"

namespace lily::cpu {
namespace {

constexpr std::int64_t kQueriesPerItem = 64;
constexpr std::int64_t kSplitBelowRows = 8;
constexpr std::int64_t kItemsPerThread = 4;  // at least, where there are rows enough
constexpr float kLog2E = 1.4426950408889634F;

std::int64_t ranges_of(std::int64_t tokens) {
  return (tokens + kAttendRange - 1) / kAttendRange;
}

// The i-th of n parts.
std::span<const std::byte> part_of(const std::byte* data, std::int64_t bytes, std::int64_t i, std::int64_t n) {
  const std::int64_t begin = bytes * i / n;
  return {data + begin, static_cast<std::size_t>(bytes * (i + 1) / n - begin)};
}

}  // namespace

struct CpuOps::AttendItem {
  const std::byte* k = nullptr;  // of the KV head, from position 0
  const std::byte* v = nullptr;
  std::int64_t kv_head = 0;
  std::int64_t row = 0;  // first row of the batch
  std::int64_t rows = 0;
  std::int64_t position = 0;     // of the first row
  std::int64_t first_range = 0;  // of the context
  std::int64_t ranges = 0;
  std::int64_t first_item = 0;  // of the same rows
  std::int64_t items = 0;
};

struct CpuOps::AttendWork {
  const Tensor& projected;
  Tensor& out;
  const float* queries;
  bool float16;
  std::int64_t item_queries;  // at most
  Attended results;           // [items, item_queries], [items, item_queries, head_dim]

  Attended result(std::int64_t item, std::int64_t query, std::int64_t head_dim) const {
    const std::int64_t at = item * item_queries + query;
    return {results.maximum + at, results.sum + at, results.out + at * head_dim};
  }
};

void CpuOps::norm_and_rope(const float* x, const float* weight, const float* rotation, float factor, float* out) const {
  kernels_.rms_norm(x, weight, config_.rms_norm_eps, factor, config_.head_dim, out);
  const std::int64_t half = config_.rotary_dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const float cosine = rotation[i];
    const float sine = rotation[half + i];
    const float a = out[i];
    const float b = out[half + i];
    out[i] = a * cosine - b * sine;
    out[half + i] = b * cosine + a * sine;
  }
}

// Cosines, then sines, of the position times the inverse frequencies.
void CpuOps::rotation_at(std::int64_t position, float* rotation) const {
  const std::int64_t half = config_.rotary_dim / 2;
  for (std::int64_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) * inverse_frequencies_[static_cast<std::size_t>(i)];
    rotation[i] = static_cast<float>(std::cos(angle));
    rotation[half + i] = static_cast<float>(std::sin(angle));
  }
}

// queries: [kv head][row][query heads of the KV head][head_dim]; work: [rows, head_dim + rotary_dim].
void CpuOps::prepare_attention(const Tensor& projected, const AttentionWeights& weights, std::int64_t layer,
                               Batch batch, float* queries, float* work) {
  const std::int64_t dim = config_.head_dim;
  const std::int64_t heads = config_.num_attention_heads;
  const std::int64_t group = heads / config_.num_key_value_heads;
  const float scale = kLog2E / std::sqrt(static_cast<float>(dim));
  const auto keep = [&](const float* from, std::byte* to, bool float16) {
    if (float16) {
      kernels_.to_float16(from, dim, reinterpret_cast<std::uint16_t*>(to));
    } else {
      std::memcpy(to, from, static_cast<std::size_t>(dim) * sizeof(float));
    }
  };
  for (const Segment& segment : batch) {
    const auto& state = static_cast<const CpuState&>(*segment.state);
    LILY_CHECK(segment.position >= 0 && segment.position + segment.rows <= state.capacity());
    for_rows(segment.rows, [&](std::int64_t i) {
      const std::int64_t row = segment.first_row + i;
      const std::int64_t position = segment.position + i;
      const float* in = values(projected) + row * projected.cols;
      float* key = work + row * (dim + config_.rotary_dim);
      float* rotation = key + dim;
      rotation_at(position, rotation);
      for (std::int64_t h = 0; h < heads; ++h) {
        float* q = queries + (((h / group) * projected.rows + row) * group + h % group) * dim;
        norm_and_rope(in + h * 2 * dim, values(weights.q_norm), rotation, scale, q);
      }
      const float* k = in + config_.query_rows();
      const float* v = k + config_.kv_rows();
      for (std::int64_t h = 0; h < config_.num_key_value_heads; ++h) {
        norm_and_rope(k + h * dim, values(weights.k_norm), rotation, 1.0F, key);
        keep(key, state.keys(layer, h) + position * state.row_bytes(), state.float16());
        keep(v + h * dim, state.values(layer, h) + position * state.row_bytes(), state.float16());
      }
    });
  }
}

std::vector<CpuOps::AttendItem> CpuOps::attention_items(Batch batch, std::int64_t layer) const {
  const std::int64_t kv_heads = config_.num_key_value_heads;
  const std::int64_t most = std::max<std::int64_t>(1, kQueriesPerItem * kv_heads / config_.num_attention_heads);
  std::int64_t all_rows = 0;
  for (const Segment& segment : batch) all_rows += segment.rows;
  const std::int64_t item_rows =
      std::clamp<std::int64_t>(all_rows * kv_heads / (kItemsPerThread * pool_.size()), 1, most);
  std::vector<AttendItem> items;
  for (const Segment& segment : batch) {
    const auto& state = static_cast<const CpuState&>(*segment.state);
    const bool split = segment.rows < kSplitBelowRows;
    const std::int64_t step = split ? most : item_rows;
    // The longest first, so that the threads end together.
    for (std::int64_t last = segment.rows; last > 0; last -= step) {
      const std::int64_t first = std::max<std::int64_t>(0, last - step);
      const std::int64_t ranges = ranges_of(segment.position + last);
      for (std::int64_t head = 0; head < kv_heads; ++head) {
        AttendItem item = {.k = state.keys(layer, head),
                           .v = state.values(layer, head),
                           .kv_head = head,
                           .row = segment.first_row + first,
                           .rows = last - first,
                           .position = segment.position + first,
                           .ranges = split ? 1 : ranges,
                           .first_item = static_cast<std::int64_t>(items.size()),
                           .items = split ? ranges : 1};
        for (std::int64_t i = 0; i < item.items; ++i) {
          item.first_range = i;
          items.push_back(item);
        }
      }
    }
  }
  return items;
}

// One item's ranges, joined, for each of its rows that sees the first of them. scratch: item_scratch().
void CpuOps::attend(const AttendWork& work, const AttendItem& item, Attended all, float* scratch) const {
  const std::int64_t dim = config_.head_dim;
  const std::int64_t group = config_.num_attention_heads / config_.num_key_value_heads;
  const std::int64_t row_bytes = dim * (work.float16 ? 2 : 4);
  const std::int64_t context = item.position + item.rows;
  const bool widen = work.float16 && item.rows > 1;
  float* const wide_k = scratch + kAttendScratch;
  float* const wide_v = wide_k + kAttendRange * dim;
  const Attended next = {wide_v + kAttendRange * dim, wide_v + kAttendRange * dim + group,
                         wide_v + kAttendRange * dim + 2 * group};
  for (std::int64_t range = item.first_range; range < item.first_range + item.ranges; ++range) {
    const std::int64_t begin = range * kAttendRange;
    const std::int64_t tokens = std::min(kAttendRange, context - begin);
    const std::int64_t tokens_after = std::clamp<std::int64_t>(context - begin - kAttendRange, 0, kAttendRange);
    const std::byte* k = item.k + begin * row_bytes;
    const std::byte* v = item.v + begin * row_bytes;
    const std::byte* k_after = k + kAttendRange * row_bytes;
    const std::byte* v_after = v + kAttendRange * row_bytes;
    if (widen) {
      kernels_.from_float16(reinterpret_cast<const std::uint16_t*>(k), tokens * dim, wide_k);
      kernels_.from_float16(reinterpret_cast<const std::uint16_t*>(v), tokens * dim, wide_v);
    }
    for (std::int64_t i = 0; i < item.rows; ++i) {
      const std::int64_t visible = std::min(tokens, item.position + i + 1 - begin);
      if (visible <= 0) continue;
      const bool first = range == item.first_range;
      const Attended own = {all.maximum + i * group, all.sum + i * group, all.out + i * group * dim};
      const auto k_ahead = part_of(k_after, tokens_after * row_bytes, i, item.rows);
      kernels_.attend(
          {.q = work.queries + (item.kv_head * work.projected.rows + item.row + i) * group * dim,
           .queries = group,
           .head_dim = dim,
           .k = widen ? static_cast<const void*>(wide_k) : k,
           .v = widen ? static_cast<const void*>(wide_v) : v,
           .float16 = work.float16 && !widen,
           .tokens = visible,
           .result = first ? own : next,
           .scratch = scratch,
           .ahead_of_scores = item.rows == 1 ? part_of(v, tokens * row_bytes, 0, 1) : k_ahead,
           .ahead_of_values = item.rows == 1 ? k_ahead : part_of(v_after, tokens_after * row_bytes, i, item.rows)});
      if (!first) kernels_.join_attended(next, group, dim, own);
    }
  }
}

// Joins what the items of the same rows have for one row, then writes out = o / sum * sigmoid(gate).
void CpuOps::finish_attention(const AttendWork& work, const AttendItem& item, std::int64_t row) const {
  const std::int64_t dim = config_.head_dim;
  const std::int64_t group = config_.num_attention_heads / config_.num_key_value_heads;
  const Attended all = work.result(item.first_item, row * group, dim);
  const std::int64_t seen = item.items == 1 ? 1 : ranges_of(item.position + row + 1);
  for (std::int64_t i = 1; i < seen; ++i) {
    kernels_.join_attended(work.result(item.first_item + i, row * group, dim), group, dim, all);
  }
  for (std::int64_t q = 0; q < group; ++q) {
    const std::int64_t head = item.kv_head * group + q;
    const float* gate = values(work.projected) + (item.row + row) * work.projected.cols + head * 2 * dim + dim;
    kernels_.sigmoid_gate(all.out + q * dim, gate, 1.0F / all.sum[q], dim,
                          values(work.out) + (item.row + row) * work.out.cols + head * dim);
  }
}

void CpuOps::attention(const Tensor& projected, const AttentionWeights& weights, std::int64_t layer, Batch batch,
                       Tensor& out) {
  LILY_CHECK(projected.cols == config_.attention_rows() && out.rows == projected.rows);
  const std::int64_t dim = config_.head_dim;
  double bytes = 0;
  double pairs = 0;  // of a query row and a token that it sees
  for (const Segment& segment : batch) {
    const auto rows = static_cast<double>(segment.rows);
    bytes += static_cast<double>(segment.position + segment.rows) *
             static_cast<double>(segment.state->kv_bytes_per_token()) /
             static_cast<double>(config_.num_attention_layers());
    pairs += rows * (static_cast<double>(segment.position) + (rows + 1) / 2);
  }
  const Profile::Scope scope(profile_, "attention", bytes,
                             4.0 * pairs * static_cast<double>(config_.num_attention_heads * dim));
  const std::int64_t group = config_.num_attention_heads / config_.num_key_value_heads;
  const std::int64_t query_floats = projected.rows * config_.num_attention_heads * dim;
  float* queries = queries_.get<float>(query_floats + projected.rows * (dim + config_.rotary_dim));
  prepare_attention(projected, weights, layer, batch, queries, queries + query_floats);

  const std::vector<AttendItem> items = attention_items(batch, layer);
  const auto count = static_cast<std::int64_t>(items.size());
  AttendWork work{.projected = projected,
                  .out = out,
                  .queries = queries,
                  .float16 = activations_ != Activations::kFloat32,
                  .item_queries = std::max(kQueriesPerItem, group),
                  .results = {}};
  work.results.out = partial_.get<float>(count * work.item_queries * (dim + 2));
  work.results.maximum = work.results.out + count * work.item_queries * dim;
  work.results.sum = work.results.maximum + count * work.item_queries;
  const std::int64_t scratch_floats = kAttendScratch + 2 * kAttendRange * dim + group * (dim + 2);
  auto* scratch = reinterpret_cast<float*>(thread_scratch(4 * scratch_floats));

  pool_.run(count, [&](std::int64_t index, int thread) noexcept {
    const AttendItem& item = items[static_cast<std::size_t>(index)];
    attend(work, item, work.result(index, 0, dim), scratch + thread * scratch_floats);
    if (item.items > 1) return;
    for (std::int64_t row = 0; row < item.rows; ++row) finish_attention(work, item, row);
  });
  std::vector<std::pair<const AttendItem*, std::int64_t>> split;
  for (const AttendItem& item : items) {
    if (item.items == 1 || item.first_range > 0) continue;
    for (std::int64_t row = 0; row < item.rows; ++row) split.emplace_back(&item, row);
  }
  pool_.run(static_cast<std::int64_t>(split.size()), [&](std::int64_t i, int) noexcept {
    finish_attention(work, *split[static_cast<std::size_t>(i)].first, split[static_cast<std::size_t>(i)].second);
  });
}

}  // namespace lily::cpu
