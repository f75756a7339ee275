// What a tool's JSON schema says about its parameters: enough to turn the text of a parameter back into JSON.
// A value is never refused: what does not convert stays a string.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace lily {

/// The JSON types that a schema allows, as a set.
class ParameterTypes {
 public:
  enum Type : unsigned { kString = 1, kNumber = 2, kBoolean = 4, kNull = 8, kObject = 16, kArray = 32 };
  static constexpr unsigned kAny = kString | kNumber | kBoolean | kNull | kObject | kArray;

  /// A schema that says nothing about types allows all.
  explicit ParameterTypes(unsigned types = kAny) : types_(types == 0 ? kAny : types) {}

  bool allows(unsigned types) const { return (types_ & types) != 0; }
  /// Whether a value that begins with `text` (empty: nothing is known yet) can only become a string.
  bool is_string(std::string_view text) const;
  /// The value as JSON. For a string: `text` quoted, as it is. Otherwise JSON stands as it is, True, False and None are
  /// understood, and anything else becomes a string; where strings are allowed too, so does JSON of another type.
  std::string to_json(std::string_view text) const;

 private:
  unsigned types_;
};

/// A function that the model may call.
struct ToolDefinition {
  std::string name;
  std::string json;  // as the prompt shows it
  std::map<std::string, ParameterTypes, std::less<>> parameters;
  ParameterTypes other;  // of parameters that the schema does not name

  bool has_parameter(std::string_view parameter) const { return parameters.find(parameter) != parameters.end(); }
  ParameterTypes types(std::string_view parameter) const;

  /// From {"type": "function", "function": {"name", "description", "parameters"}} or the inner object alone. Any JSON
  /// object is taken; what is not a usable schema says nothing about types. Throws Error for other JSON.
  static ToolDefinition from_json(const nlohmann::ordered_json& tool);
};

}  // namespace lily
