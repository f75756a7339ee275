// config.json: both places of the fields, every limit, and what lily does not run.
#include "model/config.h"

#include <gtest/gtest.h>

#include "checkpoint/test_files.h"

namespace lily {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::expect_error;

class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest() {
    const fs::path demo = fs::path(LILY_SOURCE_DIR) / "models" / "demo";
    config_ = json::parse(test::read_bytes(demo / "config.json"));
    generation_ = json::parse(test::read_bytes(demo / "generation_config.json"));
  }

  ModelConfig read() {
    test::write_bytes(directory_.path() / "config.json", config_.dump());
    if (!generation_.is_null()) {
      test::write_bytes(directory_.path() / "generation_config.json", generation_.dump());
    }
    return read_config(directory_.path());
  }
  json& text() { return config_["text_config"]; }
  void expect_text_error(const char* key, const json& value, std::initializer_list<std::string_view> parts) {
    SCOPED_TRACE(std::string(key) + " " + value.dump());
    const json before = text();
    text()[key] = value;
    expect_error([&] { read(); }, parts);
    text() = before;
  }

  test::TemporaryDirectory directory_;
  json config_;
  json generation_;
};

TEST_F(ConfigTest, ReadsTheDemoModel) {
  const ModelConfig c = read();
  EXPECT_EQ(c.hidden_size, 256);
  EXPECT_EQ(c.num_hidden_layers, 8);
  EXPECT_EQ(c.num_attention_layers(), 2);
  EXPECT_EQ(c.num_linear_layers(), 6);
  EXPECT_TRUE(c.full_attention(3));
  EXPECT_FALSE(c.full_attention(4));
  EXPECT_EQ(c.rotary_dim, 64);
  EXPECT_EQ(c.rope_theta, 1e7);
  EXPECT_EQ(c.attention_rows(), 2 * 8 * 256 + 2 * 256);
  EXPECT_EQ(c.linear_rows(), 2 * 256 + 2 * 512 + 8);
  EXPECT_TRUE(c.quantized);
  EXPECT_EQ(c.bits, 4);
  EXPECT_EQ(c.eos_token_ids, (std::vector<std::int32_t>{8168, 8166}));
}

TEST_F(ConfigTest, ReadsFieldsAtTheTopLevel) {
  json flat = text();
  flat["quantization"] = config_["quantization"];
  flat["rope_theta"] = 5e5;
  flat["partial_rotary_factor"] = 0.5;
  flat.erase("rope_parameters");
  config_ = flat;
  const ModelConfig c = read();
  EXPECT_EQ(c.hidden_size, 256);
  EXPECT_EQ(c.rotary_dim, 128);
  EXPECT_EQ(c.rope_theta, 5e5);
}

TEST_F(ConfigTest, EndTokensComeFromGenerationConfigFirst) {
  generation_["eos_token_id"] = 7;
  EXPECT_EQ(read().eos_token_ids, (std::vector<std::int32_t>{7}));
  fs::remove(directory_.path() / "generation_config.json");
  generation_ = json();
  EXPECT_EQ(read().eos_token_ids, (std::vector<std::int32_t>{8168, 8166}));
  config_.erase("eos_token_id");
  EXPECT_EQ(read().eos_token_ids, (std::vector<std::int32_t>{8166}));
  text().erase("eos_token_id");
  EXPECT_TRUE(read().eos_token_ids.empty());
}

TEST_F(ConfigTest, EndTokensAreChecked) {
  for (const json& id : {json(8192), json(-1), json("x"), json(1.5), json::array({1, nullptr})}) {
    generation_["eos_token_id"] = id;
    expect_error([&] { read(); }, {"generation_config.json", "eos_token_id", "below 8192"});
  }
}

TEST_F(ConfigTest, AdviceOnSamplingHasTheRightTypes) {
  for (const char* key : {"temperature", "top_k", "top_p", "do_sample"}) {
    const json right = generation_[key];
    for (const json& wrong : {json("hot"), json::array(), json::object()}) {
      generation_[key] = wrong;
      expect_error([&] { read(); }, {"generation_config.json", key});
    }
    generation_[key] = nullptr;
    read();
    generation_[key] = right;
  }
}

TEST_F(ConfigTest, EverySizeIsNeededAndBounded) {
  for (const char* key : {"hidden_size", "num_hidden_layers", "vocab_size", "max_position_embeddings",
                          "num_attention_heads", "num_key_value_heads", "head_dim", "linear_num_key_heads",
                          "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim", "num_experts",
                          "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size"}) {
    for (const json& value : {json(0), json(-4), json(1e30), json(4.5), json("256"), json(std::uint64_t{1} << 40),
                              json(18446744073709551615U), json::array(), json(true)}) {
      expect_text_error(key, value, {"config.json: text_config", key, "expected a whole number from"});
    }
    expect_text_error(key, nullptr, {key, "is missing"});
  }
}

TEST_F(ConfigTest, SizesMustDivide) {
  expect_text_error("hidden_size", 200, {"'hidden_size' is 200", "multiple of 64"});
  expect_text_error("moe_intermediate_size", 96, {"multiple of 64"});
  expect_text_error("shared_expert_intermediate_size", 96, {"multiple of 64"});
  expect_text_error("num_key_value_heads", 3, {"'num_attention_heads' is 8", "multiple of 3"});
  expect_text_error("linear_num_key_heads", 3, {"'linear_num_value_heads' is 4", "multiple of 3"});
  expect_text_error("head_dim", 255, {"'head_dim' is 255", "multiple of 2"});
  expect_text_error("head_dim", 4, {"num_attention_heads * head_dim is 32", "multiple of 64"});
  expect_text_error("linear_value_head_dim", 9, {"multiple of 64"});
  expect_text_error("num_experts_per_tok", 33, {"num_experts_per_tok", "from 1 to 32"});
}

TEST_F(ConfigTest, OtherArchitecturesAreRefused) {
  expect_text_error("hidden_act", "gelu", {"'hidden_act' is \"gelu\"", "\"silu\""});
  expect_text_error("attention_bias", true, {"attention_bias"});
  expect_text_error("attn_output_gate", false, {"attn_output_gate"});
  expect_text_error("tie_word_embeddings", true, {"tie_word_embeddings"});
  expect_text_error("norm_topk_prob", false, {"norm_topk_prob"});
  expect_text_error("mlp_only_layers", json::array({1}), {"mlp_only_layers"});
  expect_text_error("layer_types", json::array({"full_attention"}), {"an array of 8 names"});
  json types = text()["layer_types"];
  types[2] = "full_attention";
  expect_text_error("layer_types", types, {"layer_types[2]", "\"full_attention\"", "linear_attention"});
  config_["model_type"] = "llama";
  expect_error([&] { read(); }, {"'model_type' is \"llama\"", "qwen3_5_moe"});
  config_.erase("model_type");
  expect_error([&] { read(); }, {"model_type"});
}

TEST_F(ConfigTest, RopeIsChecked) {
  const auto with = [&](const char* key, const json& value) {
    json rope = text()["rope_parameters"];
    rope[key] = value;
    return rope;
  };
  expect_text_error("rope_parameters", with("rope_type", "yarn"), {"rope_parameters", "\"yarn\"", "\"default\""});
  expect_text_error("rope_parameters", with("partial_rotary_factor", 0), {"partial_rotary_factor"});
  expect_text_error("rope_parameters", with("partial_rotary_factor", 1.5), {"partial_rotary_factor"});
  expect_text_error("rope_parameters", with("partial_rotary_factor", "x"), {"expected a number"});
  expect_text_error("rope_parameters", with("rope_theta", 0), {"rope_theta"});
  expect_text_error("rope_parameters", with("rope_theta", 1e300), {"rope_theta"});
  expect_text_error("rope_parameters", json::array(), {"is array", "an object"});
  expect_text_error("rms_norm_eps", 0, {"rms_norm_eps"});
  expect_text_error("rms_norm_eps", 2, {"rms_norm_eps"});
}

TEST_F(ConfigTest, QuantizationIsChecked) {
  const auto refuse = [&](const json& quantization, std::initializer_list<std::string_view> parts) {
    config_["quantization"] = quantization;
    expect_error([&] { read(); }, parts);
  };
  refuse({{"bits", 5}, {"group_size", 64}}, {"'bits' is 5", "4 or 8"});
  refuse({{"bits", 2}, {"group_size", 64}}, {"'bits'"});
  refuse({{"bits", 4}, {"group_size", 32}}, {"'group_size' is 32", "64"});
  refuse({{"bits", 4}, {"group_size", 64}, {"mode", "mxfp4"}}, {"'mode' is \"mxfp4\"", "affine"});
  refuse({{"group_size", 64}}, {"'bits' is missing"});
  refuse({{"quant_method", "fp8"}}, {"\"fp8\"", "affine"});
  refuse(json::array(), {"quantization", "array"});
  config_.erase("quantization");
  EXPECT_TRUE(read().quantized);  // by `quantization_config`, which MLX writes too
  config_.erase("quantization_config");
  EXPECT_FALSE(read().quantized);
}

TEST_F(ConfigTest, FilesThatAreNoConfigAreNamed) {
  const fs::path file = directory_.path() / "config.json";
  expect_error([&] { read_config(directory_.path()); }, {"config.json", "cannot be read"});
  for (const char* text : {"", "{", "{\"a\":1,}", "\xff\xfe"}) {
    test::write_bytes(file, text);
    expect_error([&] { read_config(directory_.path()); }, {"config.json", "not valid JSON"});
  }
  for (const char* text : {"[]", "3", "null", "\"x\""}) {
    test::write_bytes(file, text);
    expect_error([&] { read_config(directory_.path()); }, {"config.json", "expected an object"});
  }
  test::write_bytes(file, std::string(100'000, '['));
  expect_error([&] { read_config(directory_.path()); }, {"nested deeper"});
  test::write_bytes(file, std::string((16 << 20) + 1, ' '));
  expect_error([&] { read_config(directory_.path()); }, {"16777217 bytes"});
}

TEST_F(ConfigTest, HostileTextIsPrintedSafely) {
  text()["hidden_act"] = std::string("\x1b[2J") + std::string(1000, 'x');
  try {
    read();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\x1b'), std::string::npos);
    EXPECT_LT(std::string(error.what()).size(), 400U);
  }
}

}  // namespace
}  // namespace lily
