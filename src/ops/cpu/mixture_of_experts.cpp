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

// Weight rows per item. Few rows of activations: longer runs of memory, and the rows are fetched less often. Many, as
// the shared expert has: small parts, so that the threads end together.
constexpr std::int64_t kIntermediateBlock = 256;  // whole groups of a record
constexpr std::int64_t kManyRows = 256;
constexpr std::int64_t kIntermediateBlockOfManyRows = 64;
constexpr std::int64_t kOutputBlock = 64;
constexpr std::int64_t kOutputBlockOfOneRow = 512;
// Longer for a matrix unit, which puts all records in order for each item.
constexpr std::int64_t kLongerForMatrixUnit = 2;

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
  std::int64_t hidden = 0;         // byte at which its hidden rows begin
};

// Some rows of an expert's gate and up.
struct CpuOps::HiddenItem {
  const ExpertGroup* group = nullptr;
  std::int64_t begin = 0;
  std::int64_t rows = 0;
};

std::vector<CpuOps::ExpertGroup> CpuOps::route(const Input& input, std::int64_t rows, const MoeWeights& weights) {
  const std::int64_t experts = config_.num_experts;
  const std::int64_t per_row = config_.num_experts_per_tok;
  const auto& storage = static_cast<const ExpertStorage&>(*weights.experts);
  float* scores = scores_.get<float>(rows * (experts + 1));
  multiply_all(input, rows, weights.router, scores, false);

  std::vector<Choice> chosen(static_cast<std::size_t>(rows * per_row));
  for_rows(rows, [&](std::int64_t row) {
    choose(scores + row * (experts + 1), experts, per_row, chosen.data() + row * per_row);
  });
  std::vector<ExpertGroup> all(static_cast<std::size_t>(experts + 1));
  const auto add = [&](std::int64_t expert, std::int64_t row, float share) {
    ExpertGroup& group = all[static_cast<std::size_t>(expert)];
    group.rows.push_back(static_cast<std::int32_t>(row));
    group.shares.push_back(share);
  };
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < per_row; ++i) {
      const Choice& choice = chosen[static_cast<std::size_t>(row * per_row + i)];
      add(choice.expert, row, choice.share);
    }
    add(experts, row, 1.0F / (1.0F + std::exp(-scores[row * (experts + 1) + experts])));
  }
  std::vector<ExpertGroup> groups;
  std::int64_t hidden = 0;
  for (std::int64_t e = 0; e <= experts; ++e) {
    ExpertGroup& group = all[static_cast<std::size_t>(e)];
    if (group.rows.empty()) continue;
    group.mlp = e < experts ? &storage.experts()[static_cast<std::size_t>(e)] : &storage.shared();
    group.hidden = hidden;
    hidden += static_cast<std::int64_t>(group.rows.size()) * hidden_row_bytes(group.mlp->down);
    groups.push_back(std::move(group));
  }
  return groups;
}

// One block of one expert's intermediate values, as floats or as records: what its down matrix takes.
void CpuOps::expert_hidden(const HiddenItem& item, const HiddenItem* next, const Input& input, std::byte* scratch,
                           std::byte* hidden) const {
  const auto& [group_of_item, begin, rows] = item;
  const ExpertGroup& group = *group_of_item;
  const Mlp& mlp = *group.mlp;
  const auto m = static_cast<std::int64_t>(group.rows.size());
  auto* gate_values = reinterpret_cast<float*>(scratch + hidden_scratch(mlp));
  float* up_values = gate_values + m * rows;
  Product product{.weight = &mlp.gate,
                  .begin = begin,
                  .rows = rows,
                  .index = group.rows.data(),
                  .m = m,
                  .out = gate_values,
                  .out_stride = rows,
                  .next = &mlp.up,
                  .next_begin = begin};
  multiply(input, product, scratch);
  product.weight = &mlp.up;
  product.out = up_values;
  product.same_input = takes_records(mlp.gate);
  product.next = next != nullptr ? &next->group->mlp->gate : nullptr;
  product.next_begin = next != nullptr ? next->begin : 0;
  multiply(input, product, scratch);
  kernels_.silu_mul(gate_values, up_values, m * rows, gate_values);
  const std::int64_t row_bytes = hidden_row_bytes(mlp.down);
  const RecordLayout layout = layout_of(mlp.down.in);
  for (std::int64_t i = 0; i < m; ++i) {
    std::byte* to = hidden + group.hidden + i * row_bytes;
    const float* from = gate_values + i * rows;
    if (takes_records(mlp.down)) {
      kernels_.quantize(from, begin / kRecordGroup, rows / kRecordGroup, layout, reinterpret_cast<std::uint8_t*>(to));
    } else {
      std::copy_n(from, rows, reinterpret_cast<float*>(to) + begin);
    }
  }
}

// One block of x's columns, all experts. The block is summed in a copy without gaps: its pieces of x lie a power of two
// apart, so that few of them would fit the caches at once.
void CpuOps::expert_output(std::span<const ExpertGroup> groups, std::int64_t begin, std::int64_t rows,
                           std::byte* hidden, std::byte* scratch, Tensor& x) const {
  auto* sums = reinterpret_cast<float*>(scratch);
  float* outputs = sums + x.rows * rows;
  std::byte* rest = scratch + (8 * x.rows * rows + 63) / 64 * 64;
  for (std::int64_t i = 0; i < x.rows; ++i) std::copy_n(values(x) + i * x.cols + begin, rows, sums + i * rows);
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const ExpertGroup& group = groups[g];
    const bool last = g + 1 == groups.size();
    const bool ends = last && begin + rows == x.cols;
    const QuantRows& down = group.mlp->down;
    const auto m = static_cast<std::int64_t>(group.rows.size());
    const std::byte* own = hidden + group.hidden;
    const Input input{reinterpret_cast<const float*>(own),
                      takes_records(down) ? reinterpret_cast<const std::uint8_t*>(own) : nullptr, layout_of(down.in)};
    multiply(input,
             {.weight = &down,
              .begin = begin,
              .rows = rows,
              .m = m,
              .out = outputs,
              .out_stride = rows,
              .next = ends ? nullptr : &groups[last ? 0 : g + 1].mlp->down,
              .next_begin = last ? begin + rows : begin},
             rest);
    for (std::int64_t i = 0; i < m; ++i) {
      const auto at = static_cast<std::size_t>(i);
      kernels_.scaled_add(outputs + i * rows, group.shares[at], rows, sums + group.rows[at] * rows);
    }
  }
  for (std::int64_t i = 0; i < x.rows; ++i) std::copy_n(sums + i * rows, rows, values(x) + i * x.cols + begin);
}

void CpuOps::mixture_of_experts(const MoeWeights& weights, Tensor& x) {
  LILY_CHECK(x.cols == config_.hidden_size);
  Input input;
  std::vector<ExpertGroup> groups;
  {
    const Profile::Scope scope(profile_, "route", stored_bytes(weights.router),
                               operations(x.rows, weights.router.out, x.cols));
    input = prepare(x, {}, &weights.post_attention_layernorm);
    groups = route(input, x.rows, weights);
  }

  std::int64_t output_block = x.rows == 1 ? kOutputBlockOfOneRow : kOutputBlock;
  if (by_matrix_unit(x.rows)) output_block *= kLongerForMatrixUnit;
  std::vector<HiddenItem> items;
  std::int64_t hidden_bytes = 0;
  std::int64_t scratch_bytes = 0;
  double down_bytes = 0;
  double down_operations = 0;
  for (const ExpertGroup& group : groups) {
    const Mlp& mlp = *group.mlp;
    const auto m = static_cast<std::int64_t>(group.rows.size());
    std::int64_t block = m < kManyRows ? kIntermediateBlock : kIntermediateBlockOfManyRows;
    if (by_matrix_unit(m)) block *= kLongerForMatrixUnit;
    for (std::int64_t b = 0; b < mlp.gate.out; b += block)
      items.push_back({&group, b, std::min(block, mlp.gate.out - b)});
    hidden_bytes += m * hidden_row_bytes(mlp.down);
    down_bytes += stored_bytes(mlp.down);
    down_operations += operations(m, mlp.down.out, mlp.down.in);
    scratch_bytes = std::max({scratch_bytes, hidden_scratch(mlp) + 4 * m * 2 * block,
                              product_scratch(mlp.down) + 4 * x.rows * 2 * output_block});
  }
  auto* hidden = hidden_.get<std::byte>(hidden_bytes);
  std::byte* scratch = thread_scratch(scratch_bytes);
  {
    const Profile::Scope scope(profile_, "experts gate, up", 2 * down_bytes, 2 * down_operations);
    pool_.run(static_cast<std::int64_t>(items.size()), [&](std::int64_t i, int thread) noexcept {
      const HiddenItem* item = items.data() + i;
      expert_hidden(*item, item == &items.back() ? nullptr : item + 1, input, scratch + thread * scratch_bytes, hidden);
    });
  }
  const Profile::Scope scope(profile_, "experts down", down_bytes, down_operations);
  pool_.run((x.cols + output_block - 1) / output_block, [&](std::int64_t i, int thread) noexcept {
    const std::int64_t begin = i * output_block;
    expert_output(groups, begin, std::min(output_block, x.cols - begin), hidden, scratch + thread * scratch_bytes, x);
  });
}

}  // namespace lily::cpu
