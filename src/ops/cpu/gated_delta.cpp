// The gated delta rule for all tokens of a batch. An item is one key head of one timeline with the value heads that
// share it: convolution, gates, recurrence and gated norm stay in its thread's cache, a few tokens at a time.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/cpu/ops_impl.h"
#include "support/error.h"

namespace lily::cpu {
namespace {

// Tokens per step: what a step reads and writes between its parts stays in the second-level cache.
constexpr std::int64_t kStepRows = 32;

float softplus(float x) {
  return x > 20.0F ? x : std::log1p(std::exp(x));
}

// Where one key head's channels stand in a row of in_proj (q | k | v | z | b | a), and its scratch for one step.
struct HeadLayout {
  std::int64_t key_dim, value_dim, value_heads, values;  // per key head
  std::int64_t q, k, v, z, b, a;                         // columns

  HeadLayout(const ModelConfig& c, std::int64_t key_head)
      : key_dim(c.linear_key_head_dim),
        value_dim(c.linear_value_head_dim),
        value_heads(c.linear_num_value_heads / c.linear_num_key_heads),
        values(value_heads * value_dim),
        q(key_head * key_dim),
        k((c.linear_num_key_heads + key_head) * key_dim),
        v(2 * c.linear_num_key_heads * key_dim + key_head * values),
        z(c.conv_channels() + key_head * values),
        b(c.conv_channels() + c.value_rows() + key_head * value_heads),
        a(b + c.linear_num_value_heads) {}
};

std::int64_t step_scratch(const ModelConfig& c) {
  const HeadLayout head(c, 0);
  return kStepRows * (2 * head.key_dim + 2 * head.values + 2) + (c.linear_conv_kernel_dim - 1) * c.conv_channels();
}

// The last kernel - 1 inputs of one range of channels, after `rows` more rows.
void keep_history(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t channels, std::int64_t kept,
                  float* history, std::int64_t history_stride) {
  for (std::int64_t i = 0; i < kept; ++i) {
    const std::int64_t t = rows - kept + i;
    const float* from = t >= 0 ? x + t * stride : history + (i + rows) * history_stride;
    std::memcpy(history + i * history_stride, from, static_cast<std::size_t>(channels) * sizeof(float));
  }
}

}  // namespace

void CpuOps::delta_head(const Tensor& projected, const GatedDeltaWeights& weights, std::int64_t layer,
                        const Segment& segment, std::int64_t key_head, float* scratch, Tensor& out) const {
  const HeadLayout head(config_, key_head);
  const auto& state = static_cast<const CpuState&>(*segment.state);
  const std::int64_t kernel = config_.linear_conv_kernel_dim;
  const std::int64_t channels = config_.conv_channels();
  const float* A_log = values(weights.A_log);
  const float* dt_bias = values(weights.dt_bias);
  float* q = scratch;
  float* k = q + kStepRows * head.key_dim;
  float* v = k + kStepRows * head.key_dim;
  float* y = v + kStepRows * head.values;
  float* decay = y + kStepRows * head.values;
  float* beta = decay + kStepRows;

  for (std::int64_t step = 0; step < segment.rows; step += kStepRows) {
    const std::int64_t rows = std::min(kStepRows, segment.rows - step);
    const std::int64_t first_row = segment.first_row + step;
    const float* input = values(projected) + first_row * projected.cols;

    const auto convolve = [&](std::int64_t channel, std::int64_t count, float* to) {
      float* history = state.conv_state(layer) + channel;
      kernels_.conv_silu({.x = input + channel,
                          .x_stride = projected.cols,
                          .rows = rows,
                          .channels = count,
                          .taps = values(weights.conv1d) + channel * kernel,
                          .kernel = kernel,
                          .history = history,
                          .history_stride = channels,
                          .out = to,
                          .out_stride = count});
      keep_history(input + channel, projected.cols, rows, count, kernel - 1, history, channels);
    };
    convolve(head.q, head.key_dim, q);
    convolve(head.k, head.key_dim, k);
    convolve(head.v, head.values, v);

    // rms_norm(x) * factor with the eps on the mean of squares.
    const auto dim = static_cast<float>(head.key_dim);
    for (std::int64_t t = 0; t < rows; ++t) {
      float* q_row = q + t * head.key_dim;
      float* k_row = k + t * head.key_dim;
      kernels_.rms_norm(q_row, nullptr, config_.rms_norm_eps, 1.0F / dim, head.key_dim, q_row);
      kernels_.rms_norm(k_row, nullptr, config_.rms_norm_eps, 1.0F / std::sqrt(dim), head.key_dim, k_row);
    }

    for (std::int64_t j = 0; j < head.value_heads; ++j) {
      const std::int64_t value_head = key_head * head.value_heads + j;
      for (std::int64_t t = 0; t < rows; ++t) {
        const float* row = input + t * projected.cols;
        decay[t] = std::exp(-std::exp(A_log[value_head]) * softplus(row[head.a + j] + dt_bias[value_head]));
        beta[t] = 1.0F / (1.0F + std::exp(-row[head.b + j]));
      }
      kernels_.delta({.state = state.delta_state(layer, value_head),
                      .key_dim = head.key_dim,
                      .value_dim = head.value_dim,
                      .rows = rows,
                      .q = q,
                      .k = k,
                      .v = v + j * head.value_dim,
                      .v_stride = head.values,
                      .decay = decay,
                      .beta = beta,
                      .y = y + j * head.value_dim,
                      .y_stride = head.values});
      for (std::int64_t t = 0; t < rows; ++t) {
        float* y_row = y + t * head.values + j * head.value_dim;
        const float* gate = input + t * projected.cols + head.z + j * head.value_dim;
        float* to = values(out) + (first_row + t) * out.cols + value_head * head.value_dim;
        kernels_.rms_norm(y_row, values(weights.norm), config_.rms_norm_eps, 1.0F, head.value_dim, y_row);
        kernels_.silu_mul(gate, y_row, head.value_dim, to);
      }
    }
  }
}

void CpuOps::gated_delta(const Tensor& projected, const GatedDeltaWeights& weights, std::int64_t layer, Batch batch,
                         Tensor& out) {
  LILY_CHECK(projected.cols == config_.linear_rows() && out.cols == config_.value_rows() && out.rows == projected.rows);
  const auto timelines = static_cast<std::int64_t>(batch.size());
  const std::int64_t state_floats =
      config_.linear_num_value_heads * config_.linear_key_head_dim * config_.linear_value_head_dim;
  const Profile::Scope scope(profile_, "gated_delta", static_cast<double>(timelines * state_floats * 8),
                             8.0 * static_cast<double>(projected.rows * state_floats));
  const std::int64_t heads = config_.linear_num_key_heads;
  const std::int64_t floats = step_scratch(config_);
  auto* scratch = reinterpret_cast<float*>(thread_scratch(4 * floats));
  pool_.run(heads * timelines, [&](std::int64_t item, int thread) noexcept {
    delta_head(projected, weights, layer, batch[static_cast<std::size_t>(item / heads)], item % heads,
               scratch + thread * floats, out);
  });
}

}  // namespace lily::cpu
