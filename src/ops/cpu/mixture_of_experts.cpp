// Router, experts and shared expert. The rows are sorted by expert, the shared expert is one more that takes every row.
// Two stages, each with items over (expert, some rows of its matrices) or over columns of the output:
//     hidden = silu(gate x) * up x                    per expert and block of the intermediate size
//     x     += sum over experts of share * down hidden    per block of the output, experts in a fixed order
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/cpu/ops_impl.h"
#include "support/error.h"

namespace lily::cpu {
namespace {

constexpr std::int64_t kIntermediateBlock = 64;
constexpr std::int64_t kOutputBlock = 32;

struct Choice {
  std::int32_t expert = 0;
  float share = 0;
};

// The `count` largest scores, the lower index first among equals, with softmax over all scores renormalised to those
// chosen: that is softmax over the chosen scores alone.
void choose(const float* scores, std::int64_t experts, std::int64_t count, Choice* chosen) {
  std::int64_t found = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    if (found == count && !(scores[e] > scores[chosen[count - 1].expert])) continue;
    std::int64_t place = found < count ? found++ : count - 1;
    for (; place > 0 && scores[e] > scores[chosen[place - 1].expert]; --place) chosen[place] = chosen[place - 1];
    chosen[place].expert = static_cast<std::int32_t>(e);
  }
  const float largest = scores[chosen[0].expert];
  float sum = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    chosen[i].share = std::exp(scores[chosen[i].expert] - largest);
    sum += chosen[i].share;
  }
  for (std::int64_t i = 0; i < count; ++i) chosen[i].share /= sum;
}

}  // namespace

struct CpuOps::ExpertGroup {
  const Mlp* mlp = nullptr;
  std::vector<std::int32_t> rows;  // of x, ascending
  std::vector<float> shares;       // by which each row's output counts
  std::int64_t hidden = 0;         // where its [rows, intermediate] begins
};

std::vector<CpuOps::ExpertGroup> CpuOps::route(const float* normed, std::int64_t rows, const MoeWeights& weights) {
  const std::int64_t experts = config_.num_experts;
  const std::int64_t per_row = config_.num_experts_per_tok;
  const auto& storage = static_cast<const ExpertStorage&>(*weights.experts);
  float* scores = scores_.get<float>(rows * (experts + 1));
  linear(normed, rows, weights.router, scores, false);

  std::vector<Choice> chosen(static_cast<std::size_t>(rows * per_row));
  for_rows(rows, [&](std::int64_t row) {
    choose(scores + row * (experts + 1), experts, per_row, chosen.data() + row * per_row);
  });
  std::vector<ExpertGroup> all(static_cast<std::size_t>(experts + 1));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < per_row; ++i) {
      const Choice& choice = chosen[static_cast<std::size_t>(row * per_row + i)];
      all[static_cast<std::size_t>(choice.expert)].rows.push_back(static_cast<std::int32_t>(row));
      all[static_cast<std::size_t>(choice.expert)].shares.push_back(choice.share);
    }
    const float gate = scores[row * (experts + 1) + experts];
    all.back().rows.push_back(static_cast<std::int32_t>(row));
    all.back().shares.push_back(1.0F / (1.0F + std::exp(-gate)));
  }
  std::vector<ExpertGroup> groups;
  std::int64_t hidden = 0;
  for (std::int64_t e = 0; e <= experts; ++e) {
    ExpertGroup& group = all[static_cast<std::size_t>(e)];
    if (group.rows.empty()) continue;
    group.mlp = e < experts ? &storage.experts()[static_cast<std::size_t>(e)] : &storage.shared();
    group.hidden = hidden;
    hidden += static_cast<std::int64_t>(group.rows.size()) * group.mlp->gate.out;
    groups.push_back(std::move(group));
  }
  return groups;
}

// One block of one expert's intermediate values.
void CpuOps::expert_hidden(const ExpertGroup& group, std::int64_t begin, const float* normed, float* scratch,
                           float* hidden) const {
  const QuantRows& gate = group.mlp->gate;
  const auto m = static_cast<std::int64_t>(group.rows.size());
  const std::int64_t rows = std::min(kIntermediateBlock, gate.out - begin);
  float* up_values = scratch + linear_scratch(gate);
  LinearCall call{.weight = &gate,
                  .begin = begin,
                  .rows = rows,
                  .x = normed,
                  .x_stride = gate.in,
                  .index = group.rows.data(),
                  .m = m,
                  .out = hidden + group.hidden + begin,
                  .out_stride = gate.out,
                  .scratch = scratch};
  kernels_.linear(call);
  call.weight = &group.mlp->up;
  call.out = up_values;
  call.out_stride = rows;
  kernels_.linear(call);
  for (std::int64_t i = 0; i < m; ++i) {
    float* to = hidden + group.hidden + i * gate.out + begin;
    kernels_.silu_mul(to, up_values + i * rows, rows, to);
  }
}

// One block of x's columns, all experts.
void CpuOps::expert_output(std::span<const ExpertGroup> groups, std::int64_t begin, const float* hidden, float* scratch,
                           Tensor& x) const {
  const std::int64_t rows = std::min(kOutputBlock, x.cols - begin);
  for (const ExpertGroup& group : groups) {
    const QuantRows& down = group.mlp->down;
    const auto m = static_cast<std::int64_t>(group.rows.size());
    float* outputs = scratch + linear_scratch(down);
    kernels_.linear({.weight = &down,
                     .begin = begin,
                     .rows = rows,
                     .x = hidden + group.hidden,
                     .x_stride = down.in,
                     .m = m,
                     .out = outputs,
                     .out_stride = rows,
                     .scratch = scratch});
    for (std::int64_t i = 0; i < m; ++i) {
      const auto at = static_cast<std::size_t>(i);
      kernels_.scaled_add(outputs + i * rows, group.shares[at], rows, values(x) + group.rows[at] * x.cols + begin);
    }
  }
}

void CpuOps::mixture_of_experts(const MoeWeights& weights, Tensor& x) {
  const std::int64_t cols = x.cols;
  float* normed = normed_.get<float>(x.rows * cols);
  for_rows(x.rows, [&](std::int64_t row) {
    kernels_.rms_norm(values(x) + row * cols, values(weights.post_attention_layernorm), config_.rms_norm_eps, 1.0F,
                      cols, normed + row * cols);
  });
  const std::vector<ExpertGroup> groups = route(normed, x.rows, weights);

  struct Item {
    const ExpertGroup* group;
    std::int64_t begin;
  };
  std::vector<Item> items;
  std::int64_t hidden_floats = 0;
  for (const ExpertGroup& group : groups) {
    const std::int64_t intermediate = group.mlp->gate.out;
    for (std::int64_t b = 0; b < intermediate; b += kIntermediateBlock) items.push_back({&group, b});
    hidden_floats += static_cast<std::int64_t>(group.rows.size()) * intermediate;
  }
  float* hidden = hidden_.get<float>(hidden_floats);
  const std::int64_t widest = std::max({cols, config_.moe_intermediate_size, config_.shared_expert_intermediate_size});
  const std::int64_t floats = kLinearTileRows * widest + x.rows * std::max(kIntermediateBlock, kOutputBlock);
  float* scratch = thread_scratch(floats);
  pool_.run(static_cast<std::int64_t>(items.size()), [&](std::int64_t i, int thread) noexcept {
    const Item& item = items[static_cast<std::size_t>(i)];
    expert_hidden(*item.group, item.begin, normed, scratch + thread * floats, hidden);
  });
  pool_.run((cols + kOutputBlock - 1) / kOutputBlock, [&](std::int64_t i, int thread) noexcept {
    expert_output(groups, i * kOutputBlock, hidden, scratch + thread * floats, x);
  });
}

}  // namespace lily::cpu
