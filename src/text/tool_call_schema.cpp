#include "text/tool_call_schema.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "support/error.h"
#include "text/tool_call_json.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

// JSON schema's names, and Python's, which schemas made from annotations by hand tend to have.
constexpr std::array<std::pair<std::string_view, unsigned>, 15> kTypeNames = {{
    {"string", ParameterTypes::kString},
    {"integer", ParameterTypes::kNumber},
    {"number", ParameterTypes::kNumber},
    {"boolean", ParameterTypes::kBoolean},
    {"null", ParameterTypes::kNull},
    {"object", ParameterTypes::kObject},
    {"array", ParameterTypes::kArray},
    {"str", ParameterTypes::kString},
    {"int", ParameterTypes::kNumber},
    {"float", ParameterTypes::kNumber},
    {"double", ParameterTypes::kNumber},
    {"bool", ParameterTypes::kBoolean},
    {"dict", ParameterTypes::kObject},
    {"list", ParameterTypes::kArray},
    {"any", ParameterTypes::kAny},
}};

unsigned named_type(const Json& name) {
  if (!name.is_string()) return 0;
  for (const auto& [spelling, type] : kTypeNames) {
    if (spelling == name.get_ref<const std::string&>()) return type;
  }
  return 0;
}

unsigned type_of(const Json& value) {
  if (value.is_string()) return ParameterTypes::kString;
  if (value.is_number()) return ParameterTypes::kNumber;
  if (value.is_boolean()) return ParameterTypes::kBoolean;
  if (value.is_null()) return ParameterTypes::kNull;
  return value.is_array() ? ParameterTypes::kArray : ParameterTypes::kObject;
}

// Walks one schema. The visits are bounded, since references can be made to multiply without end.
class SchemaReader {
 public:
  explicit SchemaReader(const Json& root) : root_(root) {}

  unsigned types(const Json& schema, int depth = 0) {
    if (!schema.is_object() || depth > kMaxDepth || --visits_left_ < 0) return ParameterTypes::kAny;
    unsigned found = stated_types(schema, depth);
    if (found == 0) found = ParameterTypes::kAny;
    const auto nullable = schema.find("nullable");
    if (nullable != schema.end() && *nullable == true) found |= ParameterTypes::kNull;
    return found;
  }

 private:
  static constexpr int kMaxDepth = 16;

  unsigned stated_types(const Json& schema, int depth) {
    if (const auto ref = schema.find("$ref"); ref != schema.end()) return referred(*ref, depth);
    if (const auto type = schema.find("type"); type != schema.end()) {
      if (!type->is_array()) return named_type(*type);
      unsigned found = 0;
      for (const auto& name : *type) found |= named_type(name);
      return found;
    }
    if (const auto constant = schema.find("const"); constant != schema.end()) return type_of(*constant);
    unsigned found = 0;
    if (const auto values = schema.find("enum"); values != schema.end() && values->is_array()) {
      for (const auto& value : *values) found |= type_of(value);
      return found;
    }
    for (const char* either : {"anyOf", "oneOf"}) {
      const auto choices = schema.find(either);
      if (choices == schema.end() || !choices->is_array()) continue;
      for (const auto& choice : *choices) found |= types(choice, depth + 1);
    }
    if (const auto all = schema.find("allOf"); all != schema.end() && all->is_array()) {
      found = found == 0 ? ParameterTypes::kAny : found;
      for (const auto& part : *all) found &= types(part, depth + 1);
    }
    if (found != 0) return found;
    if (schema.contains("properties")) return ParameterTypes::kObject;
    return schema.contains("items") ? ParameterTypes::kArray : 0U;
  }

  unsigned referred(const Json& ref, int depth) {
    if (!ref.is_string() || !ref.get_ref<const std::string&>().starts_with('#')) return 0;
    try {
      return types(root_.at(Json::json_pointer(ref.get_ref<const std::string&>().substr(1))), depth + 1);
    } catch (const Json::exception&) {
      return 0;  // it points nowhere
    }
  }

  const Json& root_;
  int visits_left_ = 10000;
};

bool begins(std::string_view whole, std::string_view beginning) {
  return whole.substr(0, beginning.size()) == beginning;
}

}  // namespace

bool ParameterTypes::is_string(std::string_view text) const {
  if (!allows(kString)) return false;
  while (!text.empty() && trim_json_space(text.substr(0, 1)).empty()) text.remove_prefix(1);
  if (text.empty()) return types_ == kString;
  if (allows(kObject) && text.front() == '{') return false;
  if (allows(kArray) && text.front() == '[') return false;
  const std::string_view word = trim_json_space(text);
  constexpr std::size_t kLongestNumber = 64;  // bounds the work when this is asked after every token
  if (allows(kNumber) && word.size() <= kLongestNumber &&
      word.find_first_not_of("+-.0123456789eE") == std::string_view::npos) {
    return false;
  }
  if (allows(kBoolean)) {
    for (const char* value : {"true", "false", "True", "False", "TRUE", "FALSE"}) {
      if (begins(value, word)) return false;
    }
  }
  return !allows(kNull) || !(begins("null", word) || begins("None", word));
}

std::string ParameterTypes::to_json(std::string_view text) const {
  if (types_ == kString) return json_quoted(text);
  const std::string_view value = trim_json_space(text);
  if (allows(kBoolean) && (value == "True" || value == "TRUE")) return "true";
  if (allows(kBoolean) && (value == "False" || value == "FALSE")) return "false";
  if ((allows(kNull) || !allows(kString)) && (value == "None" || value == "null")) return "null";
  if (!is_json(value)) return json_quoted(text);
  if (!allows(kString)) return std::string(value);
  switch (value.front()) {
    case '{':
      return allows(kObject) ? std::string(value) : json_quoted(text);
    case '[':
      return allows(kArray) ? std::string(value) : json_quoted(text);
    case 't':
    case 'f':
      return allows(kBoolean) ? std::string(value) : json_quoted(text);
    case '"':
    case 'n':
      return json_quoted(text);
    default:
      return allows(kNumber) ? std::string(value) : json_quoted(text);
  }
}

ParameterTypes ToolDefinition::types(std::string_view parameter) const {
  const auto found = parameters.find(parameter);
  return found == parameters.end() ? other : found->second;
}

ToolDefinition ToolDefinition::from_json(const Json& tool) {
  if (!tool.is_object()) throw Error("a tool is not a JSON object");
  ToolDefinition definition;
  definition.json = chat_json(tool);
  const auto wrapped = tool.find("function");
  const Json& function = wrapped != tool.end() && wrapped->is_object() ? *wrapped : tool;
  if (const auto name = function.find("name"); name != function.end() && name->is_string()) definition.name = *name;
  const auto schema = function.find("parameters");
  if (schema == function.end() || !schema->is_object()) return definition;
  SchemaReader reader(*schema);
  if (const auto properties = schema->find("properties"); properties != schema->end() && properties->is_object()) {
    for (const auto& [parameter, its_schema] : properties->items()) {
      definition.parameters.emplace(parameter, ParameterTypes(reader.types(its_schema)));
    }
  }
  if (const auto rest = schema->find("additionalProperties"); rest != schema->end()) {
    definition.other = ParameterTypes(reader.types(*rest));
  }
  return definition;
}

}  // namespace lily
