// config.json -> ModelConfig. The fields stand in `text_config` (the published files) or at the top level (text-only
// exports); what lily's equations do not cover (other activations, biases, tied embeddings, other rope types, other
// quantisation) is refused here, so that no file loads and then answers nonsense.
#include "model/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "support/error.h"
#include "support/json.h"

namespace lily {
namespace {

using nlohmann::json;

constexpr std::int64_t kGroup = 64;

/// One JSON object of one file, with errors that name both.
class Fields {
 public:
  Fields(const json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) throw_error("{}: is {}, expected an object", where_, object.type_name());
  }

  const json* find(const char* key) const {
    const auto it = object_.find(key);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }

  std::int64_t size(const char* key, std::int64_t least, std::int64_t most) const {
    const json* value = find(key);
    if (value == nullptr) throw_error("{}: '{}' is missing", where_, key);
    return checked_size(*value, key, least, most);
  }
  std::int64_t size_or(const char* key, std::int64_t otherwise, std::int64_t least, std::int64_t most) const {
    const json* value = find(key);
    return value == nullptr ? otherwise : checked_size(*value, key, least, most);
  }
  double number_or(const char* key, double otherwise) const {
    const json* value = find(key);
    if (value == nullptr) return otherwise;
    if (!value->is_number()) wrong(key, *value, "a number");
    return value->get<double>();
  }

  /// A switch or word that must have one value if it is there at all.
  void require(const char* key, const json& expected) const {
    const json* value = find(key);
    if (value != nullptr && *value != expected) wrong(key, *value, expected.dump());
  }

  [[noreturn]] void wrong(const char* key, const json& found, const std::string& expected) const {
    // Only scalars are shown: a hostile file could hold anything.
    const std::string shown = found.is_primitive() ? printable(found.dump(-1, ' ', true)) : found.type_name();
    throw_error("{}: '{}' is {}, expected {}", where_, key, shown, expected);
  }
  const std::string& where() const { return where_; }

 private:
  std::int64_t checked_size(const json& value, const char* key, std::int64_t least, std::int64_t most) const {
    const bool fits = value.is_number_unsigned() && value.get<std::uint64_t>() <= static_cast<std::uint64_t>(most) &&
                      value.get<std::int64_t>() >= least;
    if (!fits) wrong(key, value, fmt::format("a whole number from {} to {}", least, most));
    return value.get<std::int64_t>();
  }

  const json& object_;
  std::string where_;
};

/// lily's own defaults are the model card's, but a file whose advice is of the wrong type is no sound one.
void check_sampling(const Fields& generation) {
  for (const char* key : {"temperature", "top_k", "top_p", "min_p", "repetition_penalty"}) generation.number_or(key, 0);
  const json* do_sample = generation.find("do_sample");
  if (do_sample != nullptr && !do_sample->is_boolean()) generation.wrong("do_sample", *do_sample, "true or false");
}

void require_multiple(const Fields& fields, const char* what, std::int64_t value, std::int64_t factor) {
  if (value % factor != 0) throw_error("{}: {} is {}, expected a multiple of {}", fields.where(), what, value, factor);
}

void read_layers(const Fields& text, ModelConfig& c) {
  c.hidden_size = text.size("hidden_size", 1, 1 << 16);
  c.num_hidden_layers = text.size("num_hidden_layers", 1, 1024);
  c.vocab_size = text.size("vocab_size", 1, 1 << 22);
  c.max_position_embeddings = text.size("max_position_embeddings", 1, 1 << 24);
  c.full_attention_interval = text.size_or("full_attention_interval", 4, 1, 1024);
  const double eps = text.number_or("rms_norm_eps", 1e-6);
  if (!(eps > 0 && eps < 1)) throw_error("{}: 'rms_norm_eps' is {}, expected above 0 and below 1", text.where(), eps);
  c.rms_norm_eps = static_cast<float>(eps);
  require_multiple(text, "'hidden_size'", c.hidden_size, kGroup);
  text.require("hidden_act", "silu");
  text.require("attention_bias", false);
  text.require("tie_word_embeddings", false);

  const json* types = text.find("layer_types");
  if (types == nullptr) return;
  if (!types->is_array() || types->size() != static_cast<std::size_t>(c.num_hidden_layers)) {
    text.wrong("layer_types", *types, fmt::format("an array of {} names", c.num_hidden_layers));
  }
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i) {
    const char* expected = c.full_attention(i) ? "full_attention" : "linear_attention";
    const json& found = (*types)[static_cast<std::size_t>(i)];
    if (found != expected) text.wrong(fmt::format("layer_types[{}]", i).c_str(), found, expected);
  }
}

void read_attention(const Fields& text, ModelConfig& c) {
  c.num_attention_heads = text.size("num_attention_heads", 1, 1024);
  c.num_key_value_heads = text.size("num_key_value_heads", 1, 1024);
  c.head_dim = text.size("head_dim", 2, 1024);
  text.require("attn_output_gate", true);
  require_multiple(text, "'num_attention_heads'", c.num_attention_heads, c.num_key_value_heads);
  require_multiple(text, "'head_dim'", c.head_dim, 2);
  require_multiple(text, "num_attention_heads * head_dim", c.num_attention_heads * c.head_dim, kGroup);

  // Newer files keep rope in one object, older ones at the top of the text config.
  const json* object = text.find("rope_parameters");
  if (object == nullptr) object = text.find("rope_scaling");
  const json none = json::object();
  const Fields rope(object == nullptr ? none : *object, text.where() + ": rope_parameters");
  rope.require("rope_type", "default");
  rope.require("type", "default");
  c.rope_theta = rope.number_or("rope_theta", text.number_or("rope_theta", 1e7));
  if (!(c.rope_theta >= 1 && c.rope_theta <= 1e12)) {
    throw_error("{}: 'rope_theta' is {}, expected 1 to 1e12", rope.where(), c.rope_theta);
  }
  const double partial = rope.number_or("partial_rotary_factor", text.number_or("partial_rotary_factor", 0.25));
  const double rotary = static_cast<double>(c.head_dim) * partial;
  if (!(partial > 0 && partial <= 1) || rotary < 2) {
    throw_error("{}: 'partial_rotary_factor' is {}, expected above 0 and at most 1", rope.where(), partial);
  }
  c.rotary_dim = static_cast<std::int64_t>(rotary);
  require_multiple(rope, "head_dim * partial_rotary_factor", c.rotary_dim, 2);
}

void read_gated_delta(const Fields& text, ModelConfig& c) {
  c.linear_num_key_heads = text.size("linear_num_key_heads", 1, 1024);
  c.linear_num_value_heads = text.size("linear_num_value_heads", 1, 1024);
  c.linear_key_head_dim = text.size("linear_key_head_dim", 1, 1024);
  c.linear_value_head_dim = text.size("linear_value_head_dim", 1, 1024);
  c.linear_conv_kernel_dim = text.size_or("linear_conv_kernel_dim", 4, 2, 16);
  require_multiple(text, "'linear_num_value_heads'", c.linear_num_value_heads, c.linear_num_key_heads);
  require_multiple(text, "linear_num_value_heads * linear_value_head_dim", c.value_rows(), kGroup);
}

void read_experts(const Fields& text, ModelConfig& c) {
  c.num_experts = text.size("num_experts", 1, 4096);
  c.num_experts_per_tok = text.size("num_experts_per_tok", 1, std::min<std::int64_t>(c.num_experts, 64));
  c.moe_intermediate_size = text.size("moe_intermediate_size", 1, 1 << 16);
  c.shared_expert_intermediate_size = text.size("shared_expert_intermediate_size", 1, 1 << 16);
  text.require("norm_topk_prob", true);
  text.require("mlp_only_layers", json::array());
  text.require("decoder_sparse_step", 1);
  require_multiple(text, "'moe_intermediate_size'", c.moe_intermediate_size, kGroup);
  require_multiple(text, "'shared_expert_intermediate_size'", c.shared_expert_intermediate_size, kGroup);
}

void read_quantization(const Fields& config, ModelConfig& c) {
  const json* object = config.find("quantization");
  if (object == nullptr) object = config.find("quantization_config");
  if (object == nullptr) return;
  const Fields quantization(*object, config.where() + ": quantization");
  if (const json* method = quantization.find("quant_method")) {
    quantization.wrong("quant_method", *method, "MLX's affine quantisation or none (bf16)");
  }
  quantization.require("mode", "affine");
  c.quantized = true;
  c.bits = static_cast<int>(quantization.size("bits", 4, 8));
  if (c.bits != 4 && c.bits != 8) {
    throw_error("{}: 'bits' is {}, expected 4 or 8", quantization.where(), c.bits);
  }
  c.group_size = static_cast<int>(quantization.size("group_size", kGroup, kGroup));
}

/// `eos_token_id` is one id or a list of ids. False when the field is not there.
bool read_eos(const Fields& fields, ModelConfig& c) {
  const json* value = fields.find("eos_token_id");
  if (value == nullptr) return false;
  const json ids = value->is_array() ? *value : json::array({*value});
  c.eos_token_ids.clear();
  for (const json& id : ids) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= static_cast<std::uint64_t>(c.vocab_size)) {
      fields.wrong("eos_token_id", id, fmt::format("a token id below {}", c.vocab_size));
    }
    c.eos_token_ids.push_back(id.get<std::int32_t>());
  }
  return true;
}

}  // namespace

ModelConfig read_config(const std::filesystem::path& directory) {
  const std::filesystem::path file = directory / "config.json";
  const json document = read_json_file(file);
  const Fields config(document, file.string());
  const json* nested = config.find("text_config");
  const Fields text(nested == nullptr ? document : *nested, file.string() + (nested == nullptr ? "" : ": text_config"));

  const json* type = config.find("model_type");
  if (type == nullptr || (*type != "qwen3_5_moe" && *type != "qwen3_5_moe_text")) {
    config.wrong("model_type", type == nullptr ? json() : *type, "qwen3_5_moe (lily runs Qwen3.6-35B-A3B and its kin)");
  }
  ModelConfig c;
  config.require("tie_word_embeddings", false);
  read_layers(text, c);
  read_attention(text, c);
  read_gated_delta(text, c);
  read_experts(text, c);
  read_quantization(config, c);
  if (!read_eos(config, c)) read_eos(text, c);

  const std::filesystem::path generation = directory / "generation_config.json";
  std::error_code ignored;
  if (std::filesystem::exists(generation, ignored)) {
    const json generation_document = read_json_file(generation);
    const Fields fields(generation_document, generation.string());
    check_sampling(fields);
    read_eos(fields, c);
  }
  return c;
}

}  // namespace lily
