// Ops of many rows on a GPU device against the reference. What stays in bf16 between ops is rounded beforehand, so that
// only the op's own rounding is left.
#include "ops/gpu/gpu_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "device/device.h"
#include "ops/gpu/storage.h"
#include "ops/op_cases.h"
#include "reference/reference_ops.h"
#include "support/bfloat16.h"

namespace lily {
namespace {

using op_cases::Random;

// Results, and what goes into products, are rounded to bf16 (8 bits); in units of the results' root mean square.
constexpr double kTolerance = 0.04;

std::vector<DeviceKind> devices() {
  std::vector<DeviceKind> kinds{DeviceKind::kEmulated};
  if (const auto gpu = make_device(DeviceKind::kAuto)) kinds.push_back(gpu->info().kind);
  return kinds;
}

ModelConfig other_shape() {
  ModelConfig c = op_cases::demo_shape();
  c.hidden_size = 192;
  c.num_attention_heads = 6;
  c.num_key_value_heads = 2;
  c.head_dim = 128;
  c.rotary_dim = 32;
  c.linear_num_key_heads = 2;
  c.linear_num_value_heads = 4;
  c.linear_key_head_dim = 64;
  c.linear_value_head_dim = 64;
  c.num_experts = 11;
  c.num_experts_per_tok = 3;
  c.moe_intermediate_size = 64;
  c.shared_expert_intermediate_size = 192;
  return c;
}

std::vector<float> rounded(std::vector<float> values) {
  for (float& value : values) value = static_cast<float>(to_bfloat16(value));
  return values;
}

class GpuOpsTest : public testing::TestWithParam<std::tuple<DeviceKind, bool>> {
 protected:
  void SetUp() override { device_ = make_device(std::get<0>(GetParam())); }

  /// How an op's input stands in memory.
  enum class Kind { kResidual, kProjected, kOperand };
  using Upload = std::function<Tensor(std::span<const float>, std::int64_t, Kind)>;
  using Op = std::function<Tensor(Ops& ops, const Upload& upload)>;

  Tensor gpu_tensor(Ops& ops, std::span<const float> values, std::int64_t cols, Kind kind) {
    const std::int64_t rows = static_cast<std::int64_t>(values.size()) / cols;
    Tensor tensor = ops.tensor(rows, cols);
    auto& a = static_cast<gpu::Activations&>(*tensor.storage);
    if (kind == Kind::kResidual || rows == 1) {
      a.buffer = gpu::waiting_buffer(*device_, device_->allocate(values.size_bytes()));
      device_->write(*a.buffer, 0, std::as_bytes(values));
      return tensor;
    }
    a.format = gpu::Format::kBFloat16;
    a.operand_order = kind == Kind::kOperand;
    constexpr std::size_t kValueAt[] = {0, 4, 1, 5, 2, 6, 3, 7};
    std::vector<BFloat16> stored;
    for (std::size_t i = 0; i < values.size(); ++i)
      stored.push_back(to_bfloat16(values[a.operand_order ? i / 8 * 8 + kValueAt[i % 8] : i]));
    a.buffer = gpu::waiting_buffer(*device_, device_->allocate(stored.size() * 2));
    device_->write(*a.buffer, 0, std::as_bytes(std::span(stored)));
    return tensor;
  }

  /// `rows_off`: so many rows may be further off, because rounding made them choose another expert.
  void check(const ModelConfig& config, const std::string& what, const Op& op, double tolerance = kTolerance,
             std::int64_t rows_off = 0) {
    const auto reference = make_reference_ops(config);
    const Tensor expected = op(*reference, [](std::span<const float> values, std::int64_t cols, Kind) {
      return reference_tensor(static_cast<std::int64_t>(values.size()) / cols, cols, values);
    });
    const auto cores = std::get<1>(GetParam()) ? GpuOptions::TensorCores::kEmulated : GpuOptions::TensorCores::kNever;
    GpuOptions options = options_;
    options.tensor_cores = cores;
    options.attention_groups = 6;
    const auto ops = make_gpu_ops(*device_, config, options);
    const Tensor got = op(*ops, [&](std::span<const float> values, std::int64_t cols, Kind kind) {
      return gpu_tensor(*ops, values, cols, kind);
    });
    const auto found = op_cases::read(*ops, got), wanted = op_cases::read(*reference, expected);
    const auto cols = static_cast<std::size_t>(expected.cols);
    for (std::int64_t row = 0; row < expected.rows; ++row) {
      const std::size_t first = static_cast<std::size_t>(row) * cols;
      const double error =
          op_cases::error_of(std::span(found).subspan(first, cols), std::span(wanted).subspan(first, cols));
      if (!(error <= tolerance) && rows_off-- <= 0) {
        ADD_FAILURE() << what << ": row " << row << " is off by " << error;
        return;
      }
    }
  }

  void for_shapes_and_rows(const std::function<void(const ModelConfig&, std::int64_t, const std::string&)>& body) {
    if (few_) {
      body(op_cases::demo_shape(), 70, "demo rows 70");
      body(other_shape(), 33, "other rows 33");
      return;
    }
    for (const std::int64_t rows : {2, 7, 33, 70})
      body(op_cases::demo_shape(), rows, fmt::format("demo rows {}", rows));
    for (const std::int64_t rows : {2, 33}) body(other_shape(), rows, fmt::format("other rows {}", rows));
    if (std::get<0>(GetParam()) == DeviceKind::kEmulated) return;  // minutes
    body(op_cases::demo_shape(), 500, "demo rows 500");
    for (const std::int64_t rows : {2, 64}) body(op_cases::full_shape(), rows, fmt::format("full rows {}", rows));
  }

  void project();
  void project_add();
  void gated_delta();
  void attention();
  void mixture_of_experts();

  std::unique_ptr<Device> device_;
  GpuOptions options_;
  bool few_ = false;  // few shapes
};

void GpuOpsTest::project() {
  for_shapes_and_rows([&](const ModelConfig& config, std::int64_t rows, const std::string& what) {
    Random random(2);
    const std::int64_t in = config.hidden_size;
    const op_cases::RandomMatrix wide(random, 1, 130, in), narrow(random, 1, 18, in);
    const std::vector<float> norm = op_cases::normal_values(random, in);
    const std::vector<float> values = op_cases::normal_values(random, rows * in, 3.0F);
    check(config, what, [&](Ops& ops, const Upload& upload) {
      const QuantizedMatrix parts[] = {wide.view(), narrow.view()};
      Tensor out = ops.tensor(rows, 148);
      ops.project(upload(values, in, Kind::kResidual), ops.load_vector(norm), ops.load_linear(parts), out);
      return out;
    });
  });
}

void GpuOpsTest::project_add() {
  for_shapes_and_rows([&](const ModelConfig& config, std::int64_t rows, const std::string& what) {
    Random random(3);
    const std::int64_t in = config.value_rows();
    const op_cases::RandomMatrix matrix(random, 1, config.hidden_size, in);
    const std::vector<float> values = rounded(op_cases::normal_values(random, rows * in));
    const std::vector<float> before = op_cases::normal_values(random, rows * config.hidden_size);
    check(config, what, [&](Ops& ops, const Upload& upload) {
      const QuantizedMatrix parts[] = {matrix.view()};
      Tensor x = upload(before, config.hidden_size, Kind::kResidual);
      ops.project_add(upload(values, in, Kind::kOperand), ops.load_linear(parts), x);
      return x;
    });
  });
}

void GpuOpsTest::gated_delta() {
  for_shapes_and_rows([&](const ModelConfig& config, std::int64_t rows, const std::string& what) {
    Random random(5);
    const op_cases::GatedDeltaCase weights(random, config);
    const auto earlier = rounded(op_cases::normal_values(random, 5 * config.linear_rows()));
    const auto projected = rounded(op_cases::normal_values(random, 2 * rows * config.linear_rows()));
    const auto later = rounded(op_cases::normal_values(random, 4 * config.linear_rows()));
    check(
        config, what,
        [&](Ops& ops, const Upload& upload) {
          const GatedDeltaWeights loaded = weights.load(ops);
          const auto first = ops.new_state(600), second = ops.new_state(600);
          first->reset();
          second->reset();
          Tensor ignored = ops.tensor(5, config.value_rows()), out = ops.tensor(2 * rows, config.value_rows());
          const Segment before[] = {{second.get(), 0, 5, 0}};
          ops.gated_delta(upload(earlier, config.linear_rows(), Kind::kProjected), loaded, 1, before, ignored);
          const Segment batch[] = {{first.get(), 0, rows, 0}, {second.get(), rows, rows, 5}};
          ops.gated_delta(upload(projected, config.linear_rows(), Kind::kProjected), loaded, 1, batch, out);
          // The states went along: three more tokens of the one, one of the other.
          const Segment after[] = {{first.get(), 0, 3, rows}, {second.get(), 3, 1, rows + 5}};
          Tensor last = ops.tensor(4, config.value_rows());
          ops.gated_delta(upload(later, config.linear_rows(), Kind::kProjected), loaded, 1, after, last);
          std::vector<float> all = op_cases::read(ops, out);
          const std::vector<float> more = op_cases::read(ops, last);
          all.insert(all.end(), more.begin(), more.end());
          return upload(all, config.value_rows(), Kind::kResidual);
        },
        0.4);
  });
}

void GpuOpsTest::attention() {
  for_shapes_and_rows([&](const ModelConfig& config, std::int64_t rows, const std::string& what) {
    for (const std::int64_t before_rows : {2, 130}) {
      if (before_rows == 130 && rows > 33) continue;
      Random random(6);
      const op_cases::AttentionCase weights(random, config);
      const auto projected = rounded(op_cases::normal_values(random, 2 * rows * config.attention_rows()));
      const auto earlier = rounded(op_cases::normal_values(random, before_rows * config.attention_rows()));
      check(
          config, fmt::format("{} after {}", what, before_rows),
          [&](Ops& ops, const Upload& upload) {
            const AttentionWeights loaded = weights.load(ops);
            const auto first = ops.new_state(rows), second = ops.new_state(rows + before_rows);
            Tensor ignored = ops.tensor(before_rows, config.num_attention_heads * config.head_dim);
            const Segment before[] = {{second.get(), 0, before_rows, 0}};
            ops.attention(upload(earlier, config.attention_rows(), Kind::kProjected), loaded, 0, before, ignored);
            Tensor out = ops.tensor(2 * rows, config.num_attention_heads * config.head_dim);
            const Segment batch[] = {{first.get(), 0, rows, 0}, {second.get(), rows, rows, before_rows}};
            ops.attention(upload(projected, config.attention_rows(), Kind::kProjected), loaded, 0, batch, out);
            return out;
          },
          0.15);
    }
  });
}

void GpuOpsTest::mixture_of_experts() {
  for_shapes_and_rows([&](const ModelConfig& config, std::int64_t rows, const std::string& what) {
    Random random(7);
    op_cases::MoeCase weights(random, config);
    weights.norm = rounded(weights.norm);
    // Few-bit inputs with an exact norm, so that no rounding decides which expert is chosen.
    std::vector<float> values;
    for (std::int64_t i = 0; i < rows * config.hidden_size; ++i) values.push_back(random() % 2 == 0 ? 1.0F : -1.0F);
    check(
        config, what,
        [&](Ops& ops, const Upload& upload) {
          Tensor x = upload(values, config.hidden_size, Kind::kResidual);
          ops.mixture_of_experts(weights.load(ops), x);
          return x;
        },
        kTolerance, 1 + rows / 50);
  });
}

TEST_P(GpuOpsTest, ProjectNormalisesAndMultiplies) {
  project();
}
TEST_P(GpuOpsTest, ProjectAddAdds) {
  project_add();
}
TEST_P(GpuOpsTest, GatedDeltaFollowsTheRecurrence) {
  gated_delta();
}
TEST_P(GpuOpsTest, AttentionIsCausalOverTheWholeTimeline) {
  attention();
}
TEST_P(GpuOpsTest, MixtureOfExpertsRoutesEveryRow) {
  mixture_of_experts();
}

TEST_P(GpuOpsTest, ProductsMayTakeWeightsFromMemory) {
  options_.dequantise_in_products = false;
  few_ = true;
  project();
  project_add();
  for (const std::int64_t rows : {32, 64, 128}) {
    options_.expert_tile_rows = rows;
    mixture_of_experts();
    if (!std::get<1>(GetParam())) break;  // tiles that only tensor cores have
  }
}

TEST_P(GpuOpsTest, TilesOfExpertsMayHaveAnyOfTheirSizes) {
  few_ = true;
  for (const std::int64_t rows : {16, 32, 64, 128}) {
    if (rows > 32 && !std::get<1>(GetParam())) break;
    options_.expert_tile_rows = rows;
    mixture_of_experts();
  }
}

TEST_P(GpuOpsTest, TheDeltaRuleMayScan) {
  few_ = true;
  for (const auto rule : {GpuOptions::DeltaRule::kScan, GpuOptions::DeltaRule::kBlockScan}) {
    options_.delta_rule = rule;
    gated_delta();
  }
}

TEST_P(GpuOpsTest, AttentionMayReadTheCacheForEachHeadAndInAnotherOrder) {
  few_ = true;
  options_.packed_heads = false;
  attention();
  options_.coalesced_cache = false;
  attention();
}

TEST_P(GpuOpsTest, AllRowsMayGoToTheSameExperts) {
  const ModelConfig config = op_cases::demo_shape();
  Random random(8);
  const op_cases::MoeCase weights(random, config);
  std::vector<float> row = op_cases::normal_values(random, config.hidden_size), values;
  for (int i = 0; i < 40; ++i) values.insert(values.end(), row.begin(), row.end());
  check(config, "the same row", [&](Ops& ops, const Upload& upload) {
    Tensor x = upload(values, config.hidden_size, Kind::kResidual);
    ops.mixture_of_experts(weights.load(ops), x);
    return x;
  });
}

INSTANTIATE_TEST_SUITE_P(Devices, GpuOpsTest, testing::Combine(testing::ValuesIn(devices()), testing::Bool()),
                         [](const auto& test) {
                           return fmt::format("{}{}", to_string(std::get<0>(test.param)),
                                              std::get<1>(test.param) ? "_tensor_cores" : "");
                         });

}  // namespace
}  // namespace lily
