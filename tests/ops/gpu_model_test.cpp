// The demo model on a GPU device against the CPU: the same logits, the same tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "checkpoint/checkpoint.h"
#include "device/device.h"
#include "model/model.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/gpu/gpu_ops.h"

namespace lily {
namespace {

constexpr std::int32_t kPrompt[] = {8167, 846, 198, 9, 300, 1200, 77};
// The GPU keeps keys and values in bf16, the CPU in float32.
constexpr double kTolerance = 0.05;
constexpr double kPrefillTolerance = 3;  // activations in bf16; MLX's bf16 run differs by about as much

std::vector<DeviceKind> devices() {
  std::vector<DeviceKind> kinds;
#ifndef LILY_SOFT_METAL  // where kAuto is Metal, in software
  kinds.push_back(DeviceKind::kEmulated);
#endif
  if (const auto gpu = make_device(DeviceKind::kAuto)) kinds.push_back(gpu->info().kind);
  return kinds;
}

/// One timeline on one backend.
class Runner {
 public:
  Runner(const Checkpoint& checkpoint, Ops& ops) : ops_(ops), model_(load_model(checkpoint, ops)) {
    state_ = ops.new_state(256);
    state_->reset();
  }
  std::vector<float> run(std::span<const std::int32_t> tokens) {
    const Segment segment{state_.get(), 0, static_cast<std::int64_t>(tokens.size()), position_};
    const std::int64_t last = segment.rows - 1;
    const Tensor logits = forward(ops_, model_, tokens, std::span(&segment, 1), std::span(&last, 1));
    position_ += segment.rows;
    std::vector<float> values(static_cast<std::size_t>(logits.cols));
    ops_.read(logits, values);
    return values;
  }
  Ops& ops() { return ops_; }
  const Model& model() const { return model_; }
  SequenceState& state() { return *state_; }
  std::int64_t position() const { return position_; }

 private:
  Ops& ops_;
  Model model_;
  std::unique_ptr<SequenceState> state_;
  std::int64_t position_ = 0;
};

double largest_difference(std::span<const float> a, std::span<const float> b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double(a[i]) - double(b[i]));
    worst = difference <= worst ? worst : std::isnan(difference) ? INFINITY : difference;
  }
  return worst;
}

std::int32_t best(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

class GpuModel : public testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override {
    checkpoint_ = std::make_unique<Checkpoint>(Checkpoint::open(LILY_SOURCE_DIR "/models/demo"));
    cpu_ = make_cpu_ops(checkpoint_->config(), {.threads = 1, .target = "", .activations = Activations::kFloat32});
    device_ = make_device(GetParam());
  }
  std::unique_ptr<Ops> gpu(GpuOptions::TensorCores cores = GpuOptions::TensorCores::kWhereFound) {
    return make_gpu_ops(*device_, checkpoint_->config(), {.tensor_cores = cores, .attention_groups = 8});
  }

  std::unique_ptr<Checkpoint> checkpoint_;
  std::unique_ptr<Ops> cpu_;
  std::unique_ptr<Device> device_;
};

TEST_P(GpuModel, DecodesLikeTheCpu) {
  const auto ops = gpu();
  Runner on_cpu(*checkpoint_, *cpu_), on_gpu(*checkpoint_, *ops);
  for (const std::int32_t token : kPrompt) {
    const auto expected = on_cpu.run(std::span(&token, 1)), found = on_gpu.run(std::span(&token, 1));
    EXPECT_LT(largest_difference(expected, found), kTolerance) << "after token " << on_cpu.position();
  }
}

TEST_P(GpuModel, PrefillsLikeItDecodes) {
  const auto ops = gpu();
  Runner on_cpu(*checkpoint_, *cpu_), by_chunks(*checkpoint_, *ops), by_one(*checkpoint_, *ops);
  const std::span<const std::int32_t> prompt(kPrompt);
  on_cpu.run(prompt.first(5));
  by_chunks.run(prompt.first(5));
  const auto expected = on_cpu.run(prompt.subspan(5)), found = by_chunks.run(prompt.subspan(5));
  EXPECT_LT(largest_difference(expected, found), kPrefillTolerance);
  for (const std::int32_t token : prompt) by_one.run(std::span(&token, 1));
  const std::int32_t next = best(expected);
  const auto after_chunks = by_chunks.run(std::span(&next, 1)), after_one = by_one.run(std::span(&next, 1));
  EXPECT_LT(largest_difference(after_chunks, after_one), kPrefillTolerance);
}

TEST_P(GpuModel, IsTheSameWithoutItsOptimisations) {
  device_->set_overlap(false);
  GpuOptions plain{.attention_groups = 1, .tokens_on_device = false, .routing_on_device = false};
  plain.packed_heads = plain.coalesced_cache = plain.dequantise_in_products = false;
  plain.delta_rule = GpuOptions::DeltaRule::kBlockScan;
  const auto plain_ops = make_gpu_ops(*device_, checkpoint_->config(), plain);
  Runner on_cpu(*checkpoint_, *cpu_), on_plain(*checkpoint_, *plain_ops);
  const auto expected = on_cpu.run(kPrompt), found = on_plain.run(kPrompt);
  EXPECT_LT(largest_difference(expected, found), kPrefillTolerance);
  const std::int32_t next = best(expected);
  EXPECT_LT(largest_difference(on_cpu.run(std::span(&next, 1)), on_plain.run(std::span(&next, 1))), kPrefillTolerance);
  EXPECT_EQ(plain_ops->decode_loop(on_plain.state(), {}), nullptr);
}

// One at a time, token by token: what is left must still be the model.
TEST_P(GpuModel, DecodesTheSameWithoutEachOptimisation) {
  using Change = std::function<void(GpuOptions&)>;
  const std::pair<const char*, Change> changes[] = {
      {"experts' gate and up", [](GpuOptions& o) { o.fused_experts_up = false; }},
      {"experts' down", [](GpuOptions& o) { o.fused_experts_down = false; }},
      {"queries and keys", [](GpuOptions& o) { o.fused_query_key = false; }},
      {"recurrent update", [](GpuOptions& o) { o.fused_delta = false; }},
      {"packed heads", [](GpuOptions& o) { o.packed_heads = false; }},
      {"the cache's order", [](GpuOptions& o) { o.coalesced_cache = false; }},
  };
  const auto prompt = std::span(kPrompt).first(2);
  Runner on_cpu(*checkpoint_, *cpu_);
  std::vector<std::vector<float>> expected;
  for (const std::int32_t token : prompt) expected.push_back(on_cpu.run(std::span(&token, 1)));
  for (const auto& [what, change] : changes) {
    GpuOptions options{.attention_groups = 8};
    change(options);
    const auto ops = make_gpu_ops(*device_, checkpoint_->config(), options);
    Runner on_gpu(*checkpoint_, *ops);
    for (std::size_t i = 0; i < prompt.size(); ++i) {
      const auto found = on_gpu.run(prompt.subspan(i, 1));
      EXPECT_LT(largest_difference(expected[i], found), kTolerance) << "without " << what << ", token " << i;
    }
  }
}

// In the other order too, copies on the host are [token][head][dimension].
TEST_P(GpuModel, CachesOfBothOrdersReadAlikeOnTheHost) {
  const auto ops = gpu();
  const auto scattered =
      make_gpu_ops(*device_, checkpoint_->config(), {.attention_groups = 8, .coalesced_cache = false});
  Runner a(*checkpoint_, *ops), b(*checkpoint_, *scattered), c(*checkpoint_, *scattered);
  const auto prompt = std::span(kPrompt).first(2);
  a.run(prompt);
  b.run(prompt);
  const std::size_t bytes = a.state().kv_bytes_per_token() * prompt.size();
  std::vector<std::byte> from_a(bytes), from_b(bytes), from_c(bytes);
  a.state().read_kv(0, 2, from_a);
  b.state().read_kv(0, 2, from_b);
  EXPECT_EQ(from_a, from_b);
  c.state().write_kv(0, 2, from_a);
  c.state().read_kv(0, 2, from_c);
  EXPECT_EQ(from_a, from_c);
}

TEST_P(GpuModel, DrawsTheSameTokensOnTheDevice) {
  const auto ops = gpu();
  Runner on_cpu(*checkpoint_, *cpu_), on_gpu(*checkpoint_, *ops);
  std::vector<float> logits;
  for (const std::int32_t token : std::span(kPrompt).first(3)) {
    logits = on_cpu.run(std::span(&token, 1));
    on_gpu.run(std::span(&token, 1));
  }
  const auto loop = ops->decode_loop(on_gpu.state(), [&](std::span<const std::int32_t> tokens, Batch batch) {
    const std::int64_t row = 0;
    return forward(*ops, on_gpu.model(), tokens, batch, std::span(&row, 1));
  });
  SamplingParams greedy;
  greedy.temperature = 0;
  const std::int32_t first = best(logits);
  loop->start({.token = first,
               .position = on_gpu.position(),
               .vocab = 8192,
               .sampling = &greedy,
               .generated = std::span(&first, 1),
               .stops = {},
               .uniform = {}});
  constexpr int kSteps = 4;
  std::int32_t token = first;
  loop->submit();
  for (int i = 0; i < kSteps; ++i) {
    if (i + 1 < kSteps) loop->submit();  // one step ahead of the host
    token = best(on_cpu.run(std::span(&token, 1)));
    EXPECT_EQ(loop->next(), token) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, GpuModel, testing::ValuesIn(devices()),
                         [](const auto& device) { return std::string(to_string(device.param)); });

}  // namespace
}  // namespace lily
