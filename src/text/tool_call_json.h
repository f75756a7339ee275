// JSON in the spelling of the chat format: ", " and ": " as separators, keys in their order, nothing escaped for ASCII
// (Python's json.dumps(ensure_ascii=False), which the official template uses). Arguments of tool calls are kept as JSON
// text from end to end, so that numbers stay as the model or the client wrote them (1.0, 1e3, forty digits).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lily {

/// A parsed value. Floats are spelled as Python does (1e3 -> 1000.0, 1e15 -> 1000000000000000.0). Integers beyond 64
/// bits were already rounded by the JSON parser. Throws Error when nested deeper than 256 levels.
std::string chat_json(const nlohmann::ordered_json& value);

/// JSON text: only the white space and the escapes of strings change. Precondition: is_json(text).
std::string chat_json_text(std::string_view text);

bool is_json(std::string_view text);

/// `text` within a JSON string literal, without the quotes.
std::string json_escaped(std::string_view text);
/// `text` as a JSON string literal.
std::string json_quoted(std::string_view text);

/// `text` without JSON's white space at both ends.
std::string_view trim_json_space(std::string_view text);

/// One argument of a call: what stands between <parameter=name> and </parameter> when the call is rendered.
struct ToolArgument {
  std::string name;
  std::string text;  // a string is itself, anything else is JSON
};

/// The members of a JSON object in order; of a name given twice the last value stands at the first place, as in Python.
/// Empty text and "null" are no arguments. Nothing when `json` is anything else.
std::optional<std::vector<ToolArgument>> split_arguments(std::string_view json);

}  // namespace lily
