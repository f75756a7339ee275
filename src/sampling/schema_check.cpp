#include "sampling/schema_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "support/error.h"

namespace lily {
namespace {

using Json = nlohmann::json;

template <std::size_t kCount>
bool is_one_of(std::string_view key, const std::array<std::string_view, kCount>& names) {
  return std::find(names.begin(), names.end(), key) != names.end();
}

constexpr std::array<std::string_view, 4> kUnenforced = {"not", "multipleOf", "if", "contains"};
constexpr std::array<std::string_view, 4> kOfNames = {"properties", "patternProperties", "$defs", "definitions"};
constexpr std::array<std::string_view, 4> kLists = {"anyOf", "oneOf", "allOf", "prefixItems"};
constexpr std::array<std::string_view, 3> kSchemas = {"items", "additionalProperties", "propertyNames"};

[[noreturn]] void refuse(const std::string& place, std::string_view key, std::string_view why) {
  throw Error(fmt::format("the JSON schema cannot be enforced: {}/{} {}", place, key, why));
}

void check_text(const std::string& place, std::string_view key, const Json& value) {
  if (!value.is_string()) return;
  const auto& text = value.get_ref<const std::string&>();
  if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < ' ' || c == 0x7f; })) {
    refuse(place, key, "has control characters");
  }
  if (key == "$ref" && (text.empty() || text.front() != '#')) {
    refuse(place, key, "points out of the schema: put what it means into $defs");
  }
  if (key != "pattern") return;
  for (const std::string_view group : {"(?=", "(?!", "(?<=", "(?<!"}) {
    if (text.find(group) != std::string::npos) refuse(place, key, "looks around: leave that out");
  }
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    if (text[i] != '\\') continue;
    if (text[i + 1] >= '1' && text[i + 1] <= '9') refuse(place, key, "refers back to a group: leave that out");
    ++i;
  }
}

void check(const Json& schema, const std::string& place) {
  if (!schema.is_object()) return;
  for (const auto& [key, value] : schema.items()) {
    const std::string here = fmt::format("{}/{}", place, key);
    if (is_one_of(key, kUnenforced)) refuse(place, key, "is a keyword that replies cannot be held to: leave it out");
    if ((key == "type" || is_one_of(key, kLists)) && value.is_array() && value.empty() && key != "prefixItems") {
      refuse(place, key, "is empty: nothing fits");
    }
    if (key == "allOf" && value.is_array() && value.size() > 1) {
      refuse(place, key, "has several schemas: put them into one");
    }
    if (key == "$ref" || key == "pattern" || key == "format") check_text(place, key, value);
    if (is_one_of(key, kOfNames) && value.is_object()) {
      for (const auto& [name, child] : value.items()) check(child, fmt::format("{}/{}", here, name));
    } else if (is_one_of(key, kLists) && value.is_array()) {
      for (const Json& child : value) check(child, here);
    } else if (is_one_of(key, kSchemas)) {
      check(value, here);
    }
  }
}

}  // namespace

void check_schema(const std::string& schema) {
  check(Json::parse(schema, nullptr, false), "#");
}

}  // namespace lily
