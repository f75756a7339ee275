// Full attention. First every row's keys and values go to the cache and its queries are prepared; then items of some
// tokens' queries of one KV head run over the cache, so that each key and value row is read once for all query heads
// that share it. Few tokens over a long context are split over ranges of the context and joined afterwards.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/cpu/ops_impl.h"
#include "support/error.h"

namespace lily::cpu {
namespace {

constexpr std::int64_t kQueriesPerItem = 64;
constexpr std::int64_t kSplitTokens = 256;  // at least; ranges do not depend on how many threads there are
constexpr std::int64_t kMostSplits = 32;
constexpr std::int64_t kSplitBelowRows = 8;

}  // namespace

struct CpuOps::AttendItem {
  const Segment* segment = nullptr;
  std::int64_t kv_head = 0;
  std::int64_t row = 0;  // first row of the batch
  std::int64_t rows = 0;
  std::int64_t begin = 0;  // tokens of the context
  std::int64_t end = 0;
  std::int64_t first_partial = 0;  // of the ranges of the same queries, this one included
  std::int64_t partials = 1;
  std::int64_t partial = 0;
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
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
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

std::vector<CpuOps::AttendItem> CpuOps::attention_items(Batch batch) const {
  const std::int64_t group = config_.num_attention_heads / config_.num_key_value_heads;
  const std::int64_t item_rows = std::max<std::int64_t>(1, kQueriesPerItem / group);
  std::vector<AttendItem> items;
  for (const Segment& segment : batch) {
    // The longest first, so that the threads end together.
    for (std::int64_t last = segment.rows; last > 0; last -= item_rows) {
      const std::int64_t first = std::max<std::int64_t>(0, last - item_rows);
      const std::int64_t context = segment.position + last;
      const std::int64_t split = std::max(kSplitTokens, (context + kMostSplits - 1) / kMostSplits);
      const std::int64_t size = segment.rows < kSplitBelowRows ? split : context;
      const std::int64_t partials = (context + size - 1) / size;
      for (std::int64_t head = 0; head < config_.num_key_value_heads; ++head) {
        const auto first_partial = static_cast<std::int64_t>(items.size());
        for (std::int64_t i = 0; i < partials; ++i) {
          items.push_back({&segment, head, segment.first_row + first, last - first, i * size,
                           std::min(context, (i + 1) * size), first_partial, partials, first_partial + i});
        }
      }
    }
  }
  return items;
}

// Joins the ranges of one item's queries into the first, then writes out = o / sum * sigmoid(gate).
void CpuOps::finish_attention(const AttendItem& item, const Partials& partials, const Tensor& projected,
                              Tensor& out) const {
  const std::int64_t dim = config_.head_dim;
  const std::int64_t group = config_.num_attention_heads / config_.num_key_value_heads;
  for (std::int64_t q = 0; q < item.rows * group; ++q) {
    float maximum = -std::numeric_limits<float>::infinity();
    for (std::int64_t p = 0; p < item.partials; ++p) {
      maximum = std::max(maximum, partials.maximum[(item.first_partial + p) * partials.queries + q]);
    }
    float* o = partials.out + (item.first_partial * partials.queries + q) * dim;
    float sum = 0;
    for (std::int64_t p = 0; p < item.partials; ++p) {
      const std::int64_t at = (item.first_partial + p) * partials.queries + q;
      const float factor = std::exp(partials.maximum[at] - maximum);
      sum += factor * partials.sum[at];
      const float* part = partials.out + at * dim;
      if (p == 0) {
        if (factor != 1.0F) kernels_.scaled_add(part, factor - 1.0F, dim, o);
      } else {
        kernels_.scaled_add(part, factor, dim, o);
      }
    }
    const std::int64_t row = item.row + q / group;
    const std::int64_t head = item.kv_head * group + q % group;
    const float* gate = values(projected) + row * projected.cols + head * 2 * dim + dim;
    kernels_.sigmoid_gate(o, gate, 1.0F / sum, dim, values(out) + row * out.cols + head * dim);
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

  const std::vector<AttendItem> items = attention_items(batch);
  const auto count = static_cast<std::int64_t>(items.size());
  const std::int64_t most = std::max(kQueriesPerItem, group);
  Partials partials;
  partials.queries = most;
  partials.out = partial_.get<float>(count * most * (dim + 2));
  partials.maximum = partials.out + count * most * dim;
  partials.sum = partials.maximum + count * most;
  const std::int64_t scratch_floats = attend_scratch(most, dim) + 2 * most;
  auto* scratch = reinterpret_cast<float*>(thread_scratch(4 * scratch_floats));

  pool_.run(count, [&](std::int64_t index, int thread) noexcept {
    const AttendItem& item = items[static_cast<std::size_t>(index)];
    const auto& state = static_cast<const CpuState&>(*item.segment->state);
    const std::int64_t count_q = item.rows * group;
    float* own = scratch + thread * scratch_floats;
    auto* limit = reinterpret_cast<std::int64_t*>(own + attend_scratch(most, dim));
    float* maximum = partials.maximum + index * most;
    float* sum = partials.sum + index * most;
    float* o = partials.out + index * most * dim;
    for (std::int64_t q = 0; q < count_q; ++q) {
      limit[q] = item.segment->position + item.row - item.segment->first_row + q / group + 1;
    }
    std::fill_n(maximum, count_q, -std::numeric_limits<float>::infinity());
    std::fill_n(sum, count_q, 0.0F);
    std::fill_n(o, count_q * dim, 0.0F);
    kernels_.attend({.q = queries + (item.kv_head * projected.rows + item.row) * group * dim,
                     .queries = count_q,
                     .head_dim = dim,
                     .k = state.keys(layer, item.kv_head),
                     .v = state.values(layer, item.kv_head),
                     .float16 = state.float16(),
                     .begin = item.begin,
                     .end = item.end,
                     .limit = limit,
                     .maximum = maximum,
                     .sum = sum,
                     .out = o,
                     .scratch = own});
    if (item.partials == 1) finish_attention(item, partials, projected, out);
  });
  for (const AttendItem& item : items) {
    if (item.partials > 1 && item.partial == item.first_partial) finish_attention(item, partials, projected, out);
  }
}

}  // namespace lily::cpu
