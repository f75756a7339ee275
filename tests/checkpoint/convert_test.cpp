// lily convert on a small checkpoint of Hugging Face's layout, made here: names, transposition, split experts, norms.
// Codes, scales and biases are compared with MLX's by convert_oracle.py.
#include "checkpoint/convert.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/layout.h"
#include "test_files.h"

namespace lily {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::expect_error;

/// Value number `i` of a tensor: exact in bf16, different per tensor.
float value_of(const std::string& name, std::size_t i) {
  std::size_t hash = i * 7;
  for (const char c : name) hash = hash * 31 + static_cast<unsigned char>(c);
  return (static_cast<float>(hash % 255) - 127) / 64;
}

class ConvertTest : public ::testing::Test {
 protected:
  ConvertTest() : source_(directory_.path() / "hf"), out_(directory_.path() / "mlx") { write_source(); }

  /// The tiny model's tensors under Hugging Face's names and shapes.
  static std::vector<TensorSpec> source_tensors() {
    std::vector<TensorSpec> specs;
    for (const LayoutEntry& entry : text_layout(test::tiny_config())) {
      const std::size_t experts = entry.name.find("switch_mlp.");
      if (experts != std::string::npos) {
        const std::string prefix = "model.language_model." + entry.name.substr(0, experts) + "experts.";
        if (entry.name.ends_with("down_proj")) {
          specs.push_back({prefix + "down_proj", DType::kBF16, entry.shape});
        } else if (entry.name.ends_with("gate_proj")) {
          specs.push_back(
              {prefix + "gate_up_proj", DType::kBF16, {entry.shape[0], 2 * entry.shape[1], entry.shape[2]}});
        }
        continue;
      }
      TensorSpec spec{entry.bits == 0 ? entry.name : entry.name + ".weight", DType::kBF16, entry.shape};
      if (!spec.name.starts_with("lm_head")) spec.name = "model.language_model." + spec.name;
      if (spec.name.ends_with("conv1d.weight")) std::swap(spec.shape[1], spec.shape[2]);
      if (spec.name.ends_with("A_log")) spec.dtype = DType::kF32;
      specs.push_back(std::move(spec));
    }
    specs.push_back({"model.visual.blocks.0.norm1.weight", DType::kBF16, {8}});
    specs.push_back({"mtp.norm.weight", DType::kBF16, {8}});
    return specs;
  }

  void write_source() {
    test::write_tiny(directory_.path() / "tiny");
    json config = json::parse(test::read_bytes(directory_.path() / "tiny" / "config.json"));
    config.erase("quantization");
    config["vision_config"] = {{"depth", 1}};
    const std::vector<TensorSpec> specs = source_tensors();
    CheckpointWriter writer(source_);
    writer.write_file("config.json", config.dump());
    writer.write_file("chat_template.jinja", "{{ messages }}");
    writer.begin_tensors(specs, 60'000, 1);
    for (std::size_t i = 0; i < specs.size(); ++i) {
      std::string bytes;
      const std::size_t width = specs[i].dtype == DType::kF32 ? 4 : 2;
      for (std::size_t k = 0; k < specs[i].bytes() / width; ++k) {
        const float value = value_of(specs[i].name, k);
        const BFloat16 rounded = to_bfloat16(value);
        bytes.append(width == 4 ? reinterpret_cast<const char*>(&value) : reinterpret_cast<const char*>(&rounded),
                     width);
      }
      writer.write(i, 0, std::as_bytes(std::span(bytes.data(), bytes.size())));
    }
    writer.finish();
  }

  static float dequantized(const QuantizedMatrix& m, std::size_t i) {
    const auto per_word = static_cast<std::size_t>(32 / m.bits);
    const std::uint32_t code = m.codes[i / per_word] >> (i % per_word * static_cast<std::size_t>(m.bits));
    return static_cast<float>(m.scales[i / 64]) * static_cast<float>(code & ((1U << m.bits) - 1)) +
           static_cast<float>(m.biases[i / 64]);
  }

  test::TemporaryDirectory directory_;
  fs::path source_;
  fs::path out_;
};

TEST_F(ConvertTest, WritesALoadableCheckpoint) {
  const ConvertResult result = convert_checkpoint(source_, out_, {.threads = 2});
  EXPECT_EQ(result.left_out, 2U);
  const Checkpoint out = Checkpoint::open(out_);
  EXPECT_TRUE(out.config().quantized);
  EXPECT_EQ(out.text_bytes(), result.bytes);
  EXPECT_EQ(test::read_bytes(out_ / "chat_template.jinja"), "{{ messages }}");
  EXPECT_EQ(test::read_bytes(out_ / "config.json").find("vision_config"), std::string::npos);
  for (const TensorView& tensor : out.tensors()) EXPECT_TRUE(tensor.name.starts_with("language_model.")) << tensor.name;
}

TEST_F(ConvertTest, NormsGetTheirOne) {
  convert_checkpoint(source_, out_, {});
  const Checkpoint out = Checkpoint::open(out_);
  const std::string prefix = "model.language_model.";
  for (const char* name : {"norm.weight", "layers.0.input_layernorm.weight", "layers.3.self_attn.q_norm.weight",
                           "layers.3.self_attn.k_norm.weight", "layers.2.post_attention_layernorm.weight"}) {
    const std::int64_t size = out.tensor(name).shape[0];
    EXPECT_EQ(out.floats(name, {size})[5], static_cast<float>(to_bfloat16(value_of(prefix + name, 5) + 1))) << name;
  }
  const char* gated = "layers.0.linear_attn.norm.weight";
  EXPECT_EQ(out.floats(gated, {32})[5], value_of(prefix + gated, 5));
  const char* decay = "layers.0.linear_attn.A_log";
  EXPECT_EQ(out.tensor(decay).dtype, DType::kF32);
  EXPECT_EQ(out.floats(decay, {2})[1], value_of(prefix + decay, 1));
}

TEST_F(ConvertTest, ConvolutionIsTransposed) {
  convert_checkpoint(source_, out_, {});
  const Checkpoint out = Checkpoint::open(out_);
  const char* name = "layers.1.linear_attn.conv1d.weight";
  const std::vector<float> values = out.floats(name, {128, 4, 1});
  EXPECT_EQ(values[37], value_of(std::string("model.language_model.") + name, 37));
}

TEST_F(ConvertTest, ExpertsAreSplitInTheirOrder) {
  convert_checkpoint(source_, out_, {});
  const Checkpoint out = Checkpoint::open(out_);
  const std::string fused = "model.language_model.layers.2.mlp.experts.gate_up_proj";
  const QuantizedMatrix gate = out.matrix("layers.2.mlp.switch_mlp.gate_proj", 4, 64, 64);
  const QuantizedMatrix up = out.matrix("layers.2.mlp.switch_mlp.up_proj", 4, 64, 64);
  for (std::size_t expert = 0; expert < 4; ++expert) {
    for (const std::size_t row : {0UL, 17UL, 63UL}) {
      for (const std::size_t column : {0UL, 33UL}) {
        const std::size_t at = (expert * 64 + row) * 64 + column;
        EXPECT_NEAR(dequantized(gate, at), value_of(fused, (expert * 128 + row) * 64 + column), 0.3);
        EXPECT_NEAR(dequantized(up, at), value_of(fused, (expert * 128 + 64 + row) * 64 + column), 0.3);
      }
    }
  }
}

TEST_F(ConvertTest, PlainMlxCheckpointsAreTakenAsTheyAre) {
  convert_checkpoint(source_, out_, {});
  // MLX's layout in bf16: conv1d already transposed, norms with their one.
  for (const auto& file : fs::directory_iterator(source_)) {
    if (file.path().extension() != ".safetensors") continue;
    auto [header, data] = test::split_safetensors(test::read_bytes(file.path()));
    for (auto& [name, entry] : header.items()) {
      if (name.ends_with("conv1d.weight")) entry["shape"] = {128, 4, 1};
    }
    test::write_bytes(file.path(), test::safetensors(header.dump(), data));
  }
  const fs::path second = directory_.path() / "second";
  convert_checkpoint(source_, second, {});
  const Checkpoint out = Checkpoint::open(second);
  EXPECT_EQ(out.floats("norm.weight", {64})[5], value_of("model.language_model.norm.weight", 5));
  EXPECT_EQ(out.floats("layers.1.linear_attn.conv1d.weight", {128, 4, 1}),
            Checkpoint::open(out_).floats("layers.1.linear_attn.conv1d.weight", {128, 4, 1}));
}

TEST_F(ConvertTest, RefusesWhatItCannotConvert) {
  expect_error([&] { convert_checkpoint(directory_.path() / "tiny", out_, {}); }, {"quantised already"});
  expect_error([&] { convert_checkpoint(directory_.path() / "none", out_, {}); }, {"no such directory"});
  convert_checkpoint(source_, out_, {});
  expect_error([&] { convert_checkpoint(source_, out_, {}); }, {"exists already"});
}

TEST_F(ConvertTest, RefusesNumbersThatAreNotFinite) {
  const auto files = fs::directory_iterator(source_);
  const fs::path file = std::find_if(begin(files), end(files), [](const fs::directory_entry& entry) {
                          return entry.path().filename().string().starts_with("model-00001-of-");
                        })->path();
  auto [header, data] = test::split_safetensors(test::read_bytes(file));
  data[1] = '\x7f';
  data[0] = '\xc0';
  test::write_bytes(file, test::safetensors(header.dump(), data));
  expect_error([&] { convert_checkpoint(source_, out_, {.threads = 2}); }, {"embed_tokens", "not finite"});
  EXPECT_FALSE(fs::exists(out_));
  EXPECT_FALSE(fs::exists(directory_.path() / "mlx.partial"));
}

}  // namespace
}  // namespace lily
