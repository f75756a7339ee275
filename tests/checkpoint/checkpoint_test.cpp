// Opening directories: names, shapes, dtypes, alignment, shards, and each kind of damage.
#include "checkpoint/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <bit>
#include <cmath>

#include "test_files.h"

namespace lily {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::expect_error;
using test::read_bytes;
using test::write_bytes;

/// Two models of the same bytes: `one` in one file, `many` in several shards.
class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() : one_(directory_.path() / "one"), many_(directory_.path() / "many") {
    test::write_tiny(one_);
    test::write_tiny(many_, 75'000);
  }

  static void open(const fs::path& directory) { Checkpoint::open(directory); }

  /// Changes the header of one file, keeping the data.
  static void edit_header(const fs::path& file, const std::function<void(json&)>& change, std::size_t padding = 0) {
    auto [header, data] = test::split_safetensors(read_bytes(file));
    change(header);
    write_bytes(file, test::safetensors(header.dump(), data, padding));
  }
  static void edit_json(const fs::path& file, const std::function<void(json&)>& change) {
    json document = json::parse(read_bytes(file));
    change(document);
    write_bytes(file, document.dump());
  }
  /// Moves a tensor's entry to another name, in header and index.
  void rename_tensor(const std::string& from, const std::string& to) {
    edit_header(one_ / "model.safetensors", [&](json& header) {
      header[to] = header[from];
      header.erase(from);
    });
    edit_json(one_ / "model.safetensors.index.json", [&](json& index) {
      index["weight_map"][to] = "model.safetensors";
      index["weight_map"].erase(from);
    });
  }

  test::TemporaryDirectory directory_;
  fs::path one_;
  fs::path many_;
};

TEST_F(CheckpointTest, ReadsTheDemoModel) {
  const Checkpoint demo = Checkpoint::open(fs::path(LILY_SOURCE_DIR) / "models" / "demo");
  EXPECT_EQ(demo.tensors().size(), 357U);
  EXPECT_EQ(demo.text_bytes(), 13485072U);
  EXPECT_EQ(demo.config().num_hidden_layers, 8);
  EXPECT_EQ(demo.config().eos_token_ids, (std::vector<std::int32_t>{8168, 8166}));

  const QuantizedMatrix router = demo.matrix("layers.0.mlp.gate", 1, 32, 256);
  EXPECT_EQ(router.bits, 8);
  EXPECT_EQ(router.codes.size(), 32U * 64);
  const QuantizedMatrix experts = demo.matrix("layers.7.mlp.switch_mlp.down_proj", 32, 256, 64);
  EXPECT_EQ(experts.bits, 4);
  EXPECT_EQ(experts.codes.size(), 32U * 256 * 8);
  EXPECT_EQ(experts.scales.size(), 32U * 256);
  EXPECT_EQ(experts.owner, nullptr);  // not copied: this file is aligned

  EXPECT_EQ(demo.tensor("layers.0.linear_attn.A_log").dtype, DType::kF32);
  EXPECT_EQ(demo.floats("layers.0.linear_attn.A_log", {4}).size(), 4U);
  EXPECT_TRUE(demo.has("lm_head.scales"));
  EXPECT_FALSE(demo.has("language_model.lm_head.scales"));
}

TEST_F(CheckpointTest, ShardsHoldTheSameModel) {
  ASSERT_TRUE(fs::exists(many_ / "model-00002-of-00003.safetensors"));
  const Checkpoint one = Checkpoint::open(one_);
  const Checkpoint many = Checkpoint::open(many_);
  ASSERT_EQ(one.tensors().size(), many.tensors().size());
  for (const TensorView& tensor : one.tensors()) {
    const auto same = std::find_if(many.tensors().begin(), many.tensors().end(),
                                   [&](const TensorView& other) { return other.name == tensor.name; });
    ASSERT_NE(same, many.tensors().end());
    EXPECT_TRUE(std::equal(tensor.bytes.begin(), tensor.bytes.end(), same->bytes.begin(), same->bytes.end()));
  }
}

TEST_F(CheckpointTest, OneFileNeedsNoIndex) {
  fs::remove(one_ / "model.safetensors.index.json");
  EXPECT_TRUE(Checkpoint::open(one_).has("norm.weight"));
}

TEST_F(CheckpointTest, MisalignedDataIsCopied) {
  const Checkpoint aligned = Checkpoint::open(one_);
  const QuantizedMatrix expected = aligned.matrix("layers.1.mlp.switch_mlp.up_proj", 4, 64, 64);
  ASSERT_EQ(expected.owner, nullptr);
  const fs::path file = one_ / "model.safetensors";
  const std::string original = read_bytes(file);
  const auto [header, data] = test::split_safetensors(original);
  for (std::size_t residue = 0; residue < 8; ++residue) {
    const std::string text = header.dump();
    const std::size_t padding = (16 - text.size() % 8 + residue) % 8;
    fs::remove(file);  // a new file: the old one stays mapped
    write_bytes(file, test::safetensors(text, data, padding));
    QuantizedMatrix matrix;
    std::vector<float> conv;
    {
      const Checkpoint checkpoint = Checkpoint::open(one_);
      matrix = checkpoint.matrix("layers.1.mlp.switch_mlp.up_proj", 4, 64, 64);
      conv = checkpoint.floats("layers.1.linear_attn.conv1d.weight", {128, 4, 1});
      EXPECT_EQ(matrix.owner == nullptr, residue % 4 == 0);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(matrix.codes.data()) % 4, 0U);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(matrix.scales.data()) % 2, 0U);
      EXPECT_TRUE(std::equal(matrix.codes.begin(), matrix.codes.end(), expected.codes.begin(), expected.codes.end()));
    }
    EXPECT_EQ(conv, aligned.floats("layers.1.linear_attn.conv1d.weight", {128, 4, 1}));
    if (matrix.owner == nullptr) continue;  // mapped: gone with the checkpoint
    for (std::size_t i = 0; i < matrix.scales.size(); ++i) {
      EXPECT_EQ(matrix.scales[i].bits, expected.scales[i].bits);
      EXPECT_EQ(matrix.biases[i].bits, expected.biases[i].bits);
    }
  }
}

TEST_F(CheckpointTest, WidensEveryFloatType) {
  // 1.5, -2, infinity, the smallest half, NaN.
  const std::string half("\x00\x3e\x00\xc0\x00\x7c\x01\x00\x01\x7e", 10);
  const std::string single("\x00\x00\xc0\x3f\x00\x00\x00\xc0", 8);
  const std::string header = R"({"model.h":{"dtype":"F16","shape":[5],"data_offsets":[0,10]},)"
                             R"("model.s":{"dtype":"F32","shape":[2],"data_offsets":[10,18]}})";
  fs::remove(one_ / "model.safetensors.index.json");
  write_bytes(one_ / "model.safetensors", test::safetensors(header, half + single));
  const Checkpoint checkpoint = Checkpoint::open(one_);
  const std::vector<float> halves = checkpoint.floats("h", {5});
  EXPECT_EQ(halves[0], 1.5F);
  EXPECT_EQ(halves[1], -2.0F);
  EXPECT_TRUE(std::isinf(halves[2]));
  EXPECT_EQ(halves[3], std::ldexp(1.0F, -24));
  EXPECT_TRUE(std::isnan(halves[4]));
  EXPECT_EQ(checkpoint.floats("s", {2}), (std::vector<float>{1.5F, -2.0F}));
}

TEST_F(CheckpointTest, FindsBothSpellingsAndSkipsVision) {
  rename_tensor("language_model.model.norm.weight", "model.language_model.norm.weight");
  rename_tensor("language_model.lm_head.weight", "lm_head.weight");
  rename_tensor("language_model.model.layers.0.input_layernorm.weight", "vision_tower.blocks.0.norm1.weight");
  rename_tensor("language_model.model.layers.1.input_layernorm.weight", "mtp.norm.weight");
  const Checkpoint checkpoint = Checkpoint::open(one_);
  EXPECT_TRUE(checkpoint.has("norm.weight"));
  EXPECT_TRUE(checkpoint.has("lm_head.weight"));
  EXPECT_FALSE(checkpoint.has("layers.0.input_layernorm.weight"));
  expect_error([&] { checkpoint.tensor("layers.0.input_layernorm.weight"); },
               {"one", "'layers.0.input_layernorm.weight' is missing", "incomplete"});
}

TEST_F(CheckpointTest, TwoNamesOfOnePartAreRefused) {
  edit_header(one_ / "model.safetensors", [](json& header) {
    header["model.language_model.norm.weight"] = {{"dtype", "BF16"}, {"shape", {0}}, {"data_offsets", {0, 0}}};
  });
  expect_error([&] { open(one_); }, {"language_model.model.norm.weight", "same part"});
}

TEST_F(CheckpointTest, ShapesAndTypesAreWhatTheModelNeeds) {
  const Checkpoint checkpoint = Checkpoint::open(one_);
  expect_error([&] { checkpoint.floats("norm.weight", {65}); },
               {"model.safetensors", "language_model.model.norm.weight", "[64]", "[65]"});
  expect_error([&] { checkpoint.floats("norm.weight", {64, 1}); }, {"[64]", "[64, 1]"});
  expect_error([&] { checkpoint.floats("lm_head.weight", {64, 8}); }, {"U32", "BF16, F16 or F32"});
  expect_error([&] { checkpoint.matrix("lm_head", 1, 65, 64); }, {"lm_head.weight", "[64, 8]", "[65, 8]"});
  expect_error([&] { checkpoint.matrix("layers.0.mlp.switch_mlp.up_proj", 5, 64, 64); }, {"[4, 64, 8]", "[5, 64, 8]"});
  expect_error([&] { checkpoint.matrix("layers.0.mlp.switch_mlp.up_proj", 1, 64, 64); }, {"[4, 64, 8]", "[1, 64, 8]"});
  expect_error([&] { checkpoint.matrix("nothing", 1, 64, 64); }, {"'nothing.weight' is missing"});
}

TEST_F(CheckpointTest, WrongTypesAreRefused) {
  edit_header(one_ / "model.safetensors", [](json& header) {
    header["language_model.lm_head.weight"]["dtype"] = "I32";
    header["language_model.model.embed_tokens.scales"]["dtype"] = "F16";
  });
  const Checkpoint checkpoint = Checkpoint::open(one_);
  expect_error([&] { checkpoint.matrix("lm_head", 1, 64, 64); }, {"I32", "U32"});
  expect_error([&] { checkpoint.matrix("embed_tokens", 1, 64, 64); }, {"embed_tokens.scales", "F16", "BF16"});
}

TEST_F(CheckpointTest, OverridesDecideTheBits) {
  edit_json(one_ / "config.json",
            [](json& config) { config["quantization"].erase("language_model.model.layers.0.mlp.gate"); });
  const Checkpoint checkpoint = Checkpoint::open(one_);
  expect_error([&] { checkpoint.matrix("layers.0.mlp.gate", 1, 4, 64); }, {"[4, 16]", "[4, 8]"});
  EXPECT_EQ(checkpoint.matrix("layers.1.mlp.gate", 1, 4, 64).bits, 8);
}

TEST_F(CheckpointTest, OverridesAreChecked) {
  const std::string name = "language_model.model.layers.0.mlp.gate";
  const auto with = [&](const json& override) {
    edit_json(one_ / "config.json", [&](json& config) { config["quantization"][name] = override; });
  };
  with({{"bits", 3}, {"group_size", 64}});
  expect_error([&] { open(one_); }, {"config.json", name, "'bits' is 3", "4 or 8"});
  with({{"bits", 8}, {"group_size", 32}});
  expect_error([&] { open(one_); }, {"'group_size' is 32", "64"});
  with({{"bits", 8}, {"group_size", 64}, {"mode", "mxfp8"}});
  expect_error([&] { open(one_); }, {"'mode'"});
  with({{"bits", "8"}, {"group_size", 64}});
  expect_error([&] { open(one_); }, {"'bits'"});
}

TEST_F(CheckpointTest, PlainWeightsPointToConvert) {
  edit_json(one_ / "config.json", [](json& config) { config.erase("quantization"); });
  const Checkpoint checkpoint = Checkpoint::open(one_);
  EXPECT_FALSE(checkpoint.config().quantized);
  expect_error([&] { checkpoint.matrix("lm_head", 1, 64, 64); }, {"not quantised", "lily convert"});
}

TEST_F(CheckpointTest, WhatIsNoCheckpointIsNamed) {
  const fs::path empty = directory_.path() / "empty";
  fs::create_directory(empty);
  expect_error([&] { open(directory_.path() / "nothing"); }, {"nothing", "no such directory"});
  expect_error([&] { open(one_ / "config.json"); }, {"is a file", "gguf"});
  expect_error([&] { open(empty); }, {"config.json"});
  fs::copy(one_ / "config.json", empty / "config.json");
  expect_error([&] { open(empty); }, {"neither model.safetensors.index.json nor model.safetensors"});
}

TEST_F(CheckpointTest, DamagedFilesAreNamed) {
  const fs::path file = one_ / "model.safetensors";
  const std::string bytes = read_bytes(file);
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{5}, std::size_t{100}, bytes.size() / 2, bytes.size() - 1}) {
    write_bytes(file, std::string_view(bytes).substr(0, size));
    expect_error([&] { open(one_); }, {"model.safetensors", "download it again"});
  }
  fs::remove(file);
  expect_error([&] { open(one_); }, {"model.safetensors", "missing", "incomplete"});
  fs::create_directory(file);
  expect_error([&] { open(one_); }, {"model.safetensors", "a directory"});
}

TEST_F(CheckpointTest, PipesDoNotBlock) {
  const fs::path file = one_ / "model.safetensors";
  fs::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  expect_error([&] { open(one_); }, {"device or pipe"});
}

TEST_F(CheckpointTest, UnreadableFilesAreNamed) {
  if (::geteuid() == 0) GTEST_SKIP() << "root reads everything";
  fs::permissions(one_ / "model.safetensors", fs::perms::none);
  expect_error([&] { open(one_); }, {"model.safetensors", "cannot be read"});
}

TEST_F(CheckpointTest, MissingAndMixedShardsAreNamed) {
  const fs::path index = many_ / "model.safetensors.index.json";
  const std::string good = read_bytes(index);
  const std::string norm = "language_model.model.norm.weight";
  edit_json(index,
            [&](json& document) { document["weight_map"]["no.such.tensor"] = "model-00001-of-00003.safetensors"; });
  expect_error([&] { open(many_); }, {"'no.such.tensor' is not in model-00001-of-00003.safetensors"});
  write_bytes(index, good);
  edit_json(index, [&](json& document) { document["weight_map"][norm] = "model-00001-of-00003.safetensors"; });
  expect_error([&] { open(many_); }, {norm, "is not in model-00001-of-00003.safetensors"});
  write_bytes(index, good);
  fs::remove(many_ / "model-00003-of-00003.safetensors");
  expect_error([&] { open(many_); }, {"model-00003-of-00003.safetensors", "missing"});
  fs::copy(many_ / "model-00002-of-00003.safetensors", many_ / "model-00003-of-00003.safetensors");
  expect_error([&] { open(many_); }, {"is also in"});
}

}  // namespace
}  // namespace lily
