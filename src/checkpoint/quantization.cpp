#include "checkpoint/quantization.h"

#include <cstdint>
#include <nlohmann/json.hpp>

#include "support/error.h"
#include "support/json.h"

namespace lily {
namespace {

using nlohmann::json;

constexpr int kGroup = 64;

int checked_bits(const json& value, const std::string& where) {
  const auto field = [&](const char* key) {
    const auto it = value.find(key);
    return it == value.end() || !it->is_number_unsigned() ? std::uint64_t{0} : it->get<std::uint64_t>();
  };
  const std::uint64_t bits = field("bits");
  if (bits != 4 && bits != 8) throw_error("{}: 'bits' is {}, expected 4 or 8", where, bits);
  if (field("group_size") != kGroup) {
    throw_error("{}: 'group_size' is {}, expected {}", where, field("group_size"), kGroup);
  }
  if (const auto mode = value.find("mode"); mode != value.end() && *mode != "affine") {
    throw_error("{}: 'mode' is not 'affine', the only mode that lily runs", where);
  }
  return static_cast<int>(bits);
}

}  // namespace

std::string_view canonical_name(std::string_view name) {
  for (const std::string_view skipped : {"vision_tower.", "model.visual.", "visual.", "mtp.", "model.mtp."}) {
    if (name.starts_with(skipped)) return {};
  }
  for (const std::string_view prefix : {"language_model.model.", "model.language_model.", "model."}) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  constexpr std::string_view kHead = "language_model.";  // language_model.lm_head.weight
  if (name.starts_with(kHead)) return name.substr(kHead.size());
  return name.starts_with("lm_head") ? name : std::string_view();
}

Quantization::Quantization(const std::filesystem::path& directory, const ModelConfig& config)
    : default_bits_(config.bits) {
  if (!config.quantized) return;
  const std::filesystem::path file = directory / "config.json";
  const json document = read_json_file(file);
  const auto found = document.contains("quantization") && document["quantization"].is_object()
                         ? document.find("quantization")
                         : document.find("quantization_config");
  if (found == document.end()) throw_error("{}: 'quantization' is gone: the file changed", file.string());
  for (const auto& [name, value] : found->items()) {
    if (!value.is_object()) continue;
    const std::string_view canonical = canonical_name(name);
    if (canonical.empty()) continue;  // vision tower: not read
    const std::string where = file.string() + ": quantization: " + printable(name);
    overrides_.emplace(canonical, checked_bits(value, where));
  }
}

int Quantization::bits(std::string_view name) const {
  const auto it = overrides_.find(name);
  return it == overrides_.end() ? default_bits_ : it->second;
}

}  // namespace lily
