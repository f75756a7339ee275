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

Attended rows_from(const Attended& all, std::int64_t query, std::int64_t head_dim) {
  return {all.maximum + query, all.sum + query, all.out + query * head_dim};
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
  std::int64_t split = 1;   // items that the rows' context is split over
  std::int64_t result = 0;  // where split is more than 1: of the first of them; the others' follow
};

struct CpuOps::AttendWork {
  const Tensor& projected;
  Tensor& out;
  const float* queries;
  bool float16;
  std::int64_t item_queries;  // at most
  float* results;             // of items that a context is split over

  // queries x (head_dim + 2) floats.
  static Attended in(float* memory, std::int64_t queries, std::int64_t head_dim) {
    float* const maximum = memory + queries * head_dim;
    return {.maximum = maximum, .sum = maximum + queries, .out = memory};
  }
  Attended result(std::int64_t index, std::int64_t head_dim) const {
    return in(results + index * item_queries * (head_dim + 2), item_queries, head_dim);
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
  std::int64_t results = 0;
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
                           .split = split ? ranges : 1,
                           .result = results};
        for (std::int64_t i = 0; i < item.split; ++i) {
          item.first_range = i;
          items.push_back(item);
        }
        if (item.split > 1) results += item.split;
      }
    }
  }
  return items;
}

// One thread's memory for attend().
struct CpuOps::AttendScratch {
  AttendScratch(std::int64_t rows, std::int64_t group, std::int64_t dim, float* memory)
      : weights_of_row(attend_weights(group)),
        wide(memory),
        weights(wide + kAttendRange * dim),
        all(AttendWork::in(weights + rows * weights_of_row, rows * group, dim)),
        next(AttendWork::in(all.sum + rows * group, rows * group, dim)) {}
  static std::int64_t floats(std::int64_t rows, std::int64_t group, std::int64_t dim) {
    const std::int64_t all = kAttendRange * dim + rows * attend_weights(group) + 2 * rows * group * (dim + 2);
    return (all + 15) / 16 * 16;
  }

  std::int64_t weights_of_row;
  float* wide;     // [kAttendRange, head_dim]
  float* weights;  // by row
  Attended all;    // of all ranges so far
  Attended next;   // of the range after them
};

// One item's ranges, joined, for each of its rows that sees the first of them.
void CpuOps::attend(const AttendWork& work, const AttendItem& item, const Attended& all,
                    const AttendScratch& scratch) const {
  const std::int64_t dim = config_.head_dim;
  const std::int64_t group = config_.num_attention_heads / config_.num_key_value_heads;
  const std::int64_t row_bytes = dim * (work.float16 ? 2 : 4);
  const std::int64_t context = item.position + item.rows;
  const bool widen = work.float16 && item.rows > 1;  // once for all rows
  const auto tokens_of = [&](const std::byte* from, std::int64_t tokens) -> const void* {
    if (!widen) return from;
    kernels_.from_float16(reinterpret_cast<const std::uint16_t*>(from), tokens * dim, scratch.wide);
    return scratch.wide;
  };
  for (std::int64_t range = item.first_range; range < item.first_range + item.ranges; ++range) {
    const bool first = range == item.first_range;
    const std::int64_t begin = range * kAttendRange;
    const std::int64_t tokens = std::min(kAttendRange, context - begin);
    const std::int64_t tokens_after = std::clamp<std::int64_t>(context - begin - kAttendRange, 0, kAttendRange);
    const std::byte* v = item.v + begin * row_bytes;
    const std::byte* k_after = item.k + (begin + kAttendRange) * row_bytes;
    const auto visible = [&](std::int64_t i) { return std::min(tokens, item.position + i + 1 - begin); };
    const Attended& to = first ? all : scratch.next;
    const void* keys = tokens_of(item.k + begin * row_bytes, tokens);
    for (std::int64_t i = 0; i < item.rows; ++i) {
      if (visible(i) <= 0) continue;
      kernels_.attend_scores({.q = work.queries + (item.kv_head * work.projected.rows + item.row + i) * group * dim,
                              .queries = group,
                              .head_dim = dim,
                              .k = keys,
                              .float16 = work.float16 && !widen,
                              .tokens = visible(i),
                              .weights = scratch.weights + i * scratch.weights_of_row,
                              .maximum = to.maximum + i * group,
                              .sum = to.sum + i * group,
                              .ahead = part_of(v, tokens * row_bytes, i, item.rows)});
    }
    const void* values = tokens_of(v, tokens);
    for (std::int64_t i = 0; i < item.rows; ++i) {
      if (visible(i) <= 0) continue;
      kernels_.attend_values({.weights = scratch.weights + i * scratch.weights_of_row,
                              .queries = group,
                              .head_dim = dim,
                              .v = values,
                              .float16 = work.float16 && !widen,
                              .tokens = visible(i),
                              .out = to.out + i * group * dim,
                              .ahead = part_of(k_after, tokens_after * row_bytes, i, item.rows)});
      if (!first) kernels_.join_attended(rows_from(to, i * group, dim), group, dim, rows_from(all, i * group, dim));
    }
  }
}

// Joins to `item_all` what the other items of the same rows have for one row, then writes out = o / sum *
// sigmoid(gate).
void CpuOps::finish_attention(const AttendWork& work, const AttendItem& item, std::int64_t row,
                              const Attended& item_all) const {
  const std::int64_t dim = config_.head_dim;
  const std::int64_t group = config_.num_attention_heads / config_.num_key_value_heads;
  const Attended all = rows_from(item_all, row * group, dim);
  const std::int64_t seen = item.split == 1 ? 1 : ranges_of(item.position + row + 1);
  for (std::int64_t i = 1; i < seen; ++i) {
    kernels_.join_attended(rows_from(work.result(item.result + i, dim), row * group, dim), group, dim, all);
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
  const std::int64_t results = std::count_if(items.begin(), items.end(), [](const auto& i) { return i.split > 1; });
  const std::int64_t item_rows = std::max<std::int64_t>(1, kQueriesPerItem / group);
  const AttendWork work{.projected = projected,
                        .out = out,
                        .queries = queries,
                        .float16 = activations_ != Activations::kFloat32,
                        .item_queries = item_rows * group,
                        .results = partial_.get<float>(results * item_rows * group * (dim + 2))};
  const std::int64_t scratch_floats = AttendScratch::floats(item_rows, group, dim);
  auto* memory = reinterpret_cast<float*>(thread_scratch(4 * scratch_floats));

  pool_.run(static_cast<std::int64_t>(items.size()), [&](std::int64_t index, int thread) noexcept {
    const AttendItem& item = items[static_cast<std::size_t>(index)];
    const AttendScratch scratch(item_rows, group, dim, memory + thread * scratch_floats);
    if (item.split > 1) {
      attend(work, item, work.result(item.result + item.first_range, dim), scratch);
      return;
    }
    attend(work, item, scratch.all, scratch);
    for (std::int64_t row = 0; row < item.rows; ++row) finish_attention(work, item, row, scratch.all);
  });
  std::vector<std::pair<const AttendItem*, std::int64_t>> split_rows;
  for (const AttendItem& item : items) {
    if (item.split == 1 || item.first_range > 0) continue;
    for (std::int64_t row = 0; row < item.rows; ++row) split_rows.emplace_back(&item, row);
  }
  pool_.run(static_cast<std::int64_t>(split_rows.size()), [&](std::int64_t i, int) noexcept {
    const auto& [item, row] = split_rows[static_cast<std::size_t>(i)];
    finish_attention(work, *item, row, work.result(item->result, dim));
  });
}

}  // namespace lily::cpu
