// Random checkpoints: the published byte count, the same bytes for any thread count, and values that make sense.
#include "checkpoint/synthetic.h"

#include <gtest/gtest.h>

#include <cmath>

#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"
#include "checkpoint/synthetic_values.h"
#include "test_files.h"

namespace lily {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::read_bytes;

TEST(Layout, FullSizeHasThePublishedTextBytes) {
  std::int64_t bytes = 0;
  std::int64_t tensors = 0;
  for (const LayoutEntry& entry : text_layout(full_size())) {
    bytes += entry.bytes();
    tensors += entry.bits == 0 ? 1 : 3;
  }
  EXPECT_EQ(bytes, 19'508'787'456);
  EXPECT_EQ(tensors, 1757);
}

TEST(Layout, IsTheDemoModelsOwn) {
  const Checkpoint demo = Checkpoint::open(fs::path(LILY_SOURCE_DIR) / "models" / "demo");
  std::size_t tensors = 0;
  for (const LayoutEntry& entry : text_layout(demo.config())) {
    if (entry.bits == 0) {
      EXPECT_EQ(demo.tensor(entry.name).shape, entry.shape) << entry.name;
      ++tensors;
      continue;
    }
    const bool stacked = entry.shape.size() == 3;
    const std::int64_t experts = stacked ? entry.shape[0] : 1;
    EXPECT_EQ(demo.matrix(entry.name, experts, entry.shape[stacked ? 1 : 0], entry.shape.back()).bits, entry.bits);
    tensors += 3;
  }
  EXPECT_EQ(tensors, demo.tensors().size());
}

TEST(Layout, PartsAreToldApart) {
  EXPECT_EQ(part_of("layers.3.mlp.gate"), ModelPart::kRouters);
  EXPECT_EQ(part_of("layers.3.mlp.gate.scales"), ModelPart::kRouters);
  EXPECT_EQ(part_of("layers.3.mlp.shared_expert_gate.weight"), ModelPart::kRouters);
  EXPECT_EQ(part_of("layers.3.mlp.shared_expert.gate_proj.weight"), ModelPart::kExperts);
  EXPECT_EQ(part_of("layers.3.mlp.switch_mlp.gate_proj"), ModelPart::kExperts);
  EXPECT_EQ(part_of("layers.3.linear_attn.norm.weight"), ModelPart::kGatedDelta);
  EXPECT_EQ(part_of("layers.3.self_attn.q_norm.weight"), ModelPart::kAttention);
  EXPECT_EQ(part_of("layers.3.input_layernorm.weight"), ModelPart::kNorms);
  EXPECT_EQ(part_of("norm.weight"), ModelPart::kNorms);
  EXPECT_EQ(part_of("lm_head"), ModelPart::kLmHead);
}

class SyntheticTest : public ::testing::Test {
 protected:
  fs::path path(const char* name) const { return directory_.path() / name; }
  test::TemporaryDirectory directory_;
};

TEST_F(SyntheticTest, SeedDecidesTheBytesAndThreadsDoNot) {
  SyntheticOptions options;
  options.config = test::tiny_config();
  options.config.vocab_size = 1 << 17;  // several pieces per tensor
  options.seed = 5;
  write_synthetic(path("a"), options);
  options.threads = 3;
  write_synthetic(path("b"), options);
  options.seed = 6;
  write_synthetic(path("c"), options);
  const std::string a = read_bytes(path("a") / "model.safetensors");
  EXPECT_EQ(a, read_bytes(path("b") / "model.safetensors"));
  EXPECT_NE(a, read_bytes(path("c") / "model.safetensors"));
}

TEST_F(SyntheticTest, DataIsAlignedForDevices) {
  test::write_tiny(path("m"), 75'000);
  const Checkpoint checkpoint = Checkpoint::open(path("m"));
  const auto address = reinterpret_cast<std::uintptr_t>(checkpoint.tensors()[0].bytes.data());
  EXPECT_EQ(address % 64, 0U);
}

TEST_F(SyntheticTest, WeightsHaveTheIntendedSpread) {
  test::write_tiny(path("m"));
  const Checkpoint checkpoint = Checkpoint::open(path("m"));
  const QuantizedMatrix matrix = checkpoint.matrix("layers.0.linear_attn.in_proj_qkv", 1, 128, 64);
  double sum = 0;
  double squares = 0;
  for (std::size_t i = 0; i < matrix.codes.size() * 8; ++i) {
    const std::uint32_t code = (matrix.codes[i / 8] >> (i % 8 * 4)) & 15U;
    const std::size_t group = i / 64;
    const double weight = static_cast<double>(static_cast<float>(matrix.scales[group])) * code +
                          static_cast<double>(static_cast<float>(matrix.biases[group]));
    sum += weight;
    squares += weight * weight;
  }
  const auto count = static_cast<double>(matrix.codes.size() * 8);
  EXPECT_NEAR(sum / count, 0, 0.01);
  EXPECT_NEAR(std::sqrt(squares / count), 1 / std::sqrt(64.0), 0.02);
  for (const float decay : checkpoint.floats("layers.0.linear_attn.A_log", {2})) {
    EXPECT_GE(decay, 0);
    EXPECT_LE(decay, std::log(16.1F));
  }
}

TEST_F(SyntheticTest, NumbersAreUniformAndNormal) {
  const CounterRandom random(1, "x");
  double uniform = 0;
  double normal = 0;
  double squares = 0;
  constexpr int kCount = 20'000;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    uniform += random.uniform(i);
    normal += random.normal(i);
    squares += random.normal(i) * random.normal(i);
  }
  EXPECT_NEAR(uniform / kCount, 0.5, 0.01);
  EXPECT_NEAR(normal / kCount, 0, 0.03);
  EXPECT_NEAR(squares / kCount, 1, 0.04);
  EXPECT_NE(random.word(0), CounterRandom(1, "y").word(0));
  EXPECT_NE(random.word(0), CounterRandom(2, "x").word(0));
}

TEST_F(SyntheticTest, TokenizerIsCopiedWhenItFits) {
  SyntheticOptions options;
  options.config = test::tiny_config();
  options.tokenizer_from = fs::path(LILY_SOURCE_DIR) / "models" / "demo";
  EXPECT_FALSE(write_synthetic(path("small"), options).tokenizer);
  EXPECT_FALSE(fs::exists(path("small") / "tokenizer.json"));
  options.config.vocab_size = 8192;
  EXPECT_TRUE(write_synthetic(path("large"), options).tokenizer);
  EXPECT_EQ(read_config(path("large")).eos_token_ids, (std::vector<std::int32_t>{8168, 8166}));
}

TEST_F(SyntheticTest, NothingIsLeftOfARefusedOne) {
  SyntheticOptions options;
  options.config = test::tiny_config();
  options.config.hidden_size = 100;
  expect_error([&] { write_synthetic(path("m"), options); }, {"'hidden_size' is 100", "multiple of 64"});
  EXPECT_TRUE(fs::is_empty(directory_.path()));
}

TEST_F(SyntheticTest, NothingIsOverwritten) {
  test::write_tiny(path("m"));
  expect_error([&] { test::write_tiny(path("m")); }, {"exists already"});
  fs::create_directory(path("n.partial"));
  expect_error([&] { test::write_tiny(path("n")); }, {"n.partial", "interrupted", "rm -r"});
  test::write_bytes(path("file"), "x");
  expect_error([&] { test::write_tiny(path("file")); }, {"exists already"});
  expect_error([&] { test::write_tiny(path("file") / "below"); }, {"cannot be made"});
}

TEST_F(SyntheticTest, AnEmptyDirectoryIsFilled) {
  fs::create_directory(path("m"));
  test::write_tiny(path("m") / "");
  EXPECT_TRUE(Checkpoint::open(path("m")).has("norm.weight"));
}

TEST_F(SyntheticTest, TooLittleSpaceIsSeenFirst) {
  SyntheticOptions options;
  options.config = full_size();
  options.config.num_hidden_layers = 1024;
  options.config.num_experts = 4096;  // 7 TB
  expect_error([&] { write_synthetic(path("m"), options); }, {"are needed", "free on this disk"});
  EXPECT_TRUE(fs::is_empty(directory_.path()));
}

}  // namespace
}  // namespace lily
