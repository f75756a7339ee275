#include "chat/demo_tools.h"

#include <fmt/chrono.h>

#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "support/error.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kDefinitions = R"json([
  {"type": "function", "function": {"name": "add", "description": "Add two numbers.",
    "parameters": {"type": "object", "properties": {
      "a": {"type": "number", "description": "The first number"},
      "b": {"type": "number", "description": "The second number"}}, "required": ["a", "b"]}}},
  {"type": "function", "function": {"name": "get_time", "description": "Get the current time on this computer.",
    "parameters": {"type": "object", "properties": {}, "required": []}}},
  {"type": "function", "function": {"name": "count_words", "description": "Count the words of a text.",
    "parameters": {"type": "object", "properties": {
      "text": {"type": "string", "description": "The text"}}, "required": ["text"]}}},
  {"type": "function", "function": {"name": "roll_dice", "description": "Roll a die.",
    "parameters": {"type": "object", "properties": {
      "sides": {"type": "integer", "description": "The number of sides"}}, "required": []}}}
])json";

double number(const Json& arguments, const char* name) {
  const auto it = arguments.find(name);
  if (it == arguments.end() || !it->is_number()) throw_error("'{}' must be a number", name);
  return it->get<double>();
}

Json add(const Json& arguments) {
  const double sum = number(arguments, "a") + number(arguments, "b");
  constexpr double kExact = 9007199254740992;  // integers up to 2^53 are exact
  if (std::floor(sum) == sum && std::abs(sum) <= kExact) return static_cast<std::int64_t>(sum);
  return sum;
}

Json get_time(const Json& /*arguments*/) {
  return fmt::format("{:%H:%M, %Y-%m-%d}", fmt::localtime(std::time(nullptr)));
}

Json count_words(const Json& arguments) {
  const auto it = arguments.find("text");
  if (it == arguments.end() || !it->is_string()) throw Error("'text' must be a string");
  std::istringstream words(it->get<std::string>());
  std::int64_t count = 0;
  for (std::string word; words >> word;) ++count;
  return count;
}

Json roll_dice(const Json& arguments) {
  const double sides = arguments.contains("sides") ? number(arguments, "sides") : 6;
  if (!(sides >= 1 && sides <= 1e6)) throw Error("'sides' must be between 1 and 1000000");
  std::random_device random;
  return std::uniform_int_distribution<int>(1, static_cast<int>(sides))(random);
}

}  // namespace

std::vector<ToolDefinition> demo_tools() {
  std::vector<ToolDefinition> tools;
  for (const Json& tool : Json::parse(kDefinitions)) tools.push_back(ToolDefinition::from_json(tool));
  return tools;
}

std::string run_demo_tool(const ToolCall& call) {
  try {
    const Json arguments = Json::parse(call.arguments);
    Json result;
    if (call.name == "add") {
      result = add(arguments);
    } else if (call.name == "get_time") {
      result = get_time(arguments);
    } else if (call.name == "count_words") {
      result = count_words(arguments);
    } else if (call.name == "roll_dice") {
      result = roll_dice(arguments);
    } else {
      throw_error("there is no tool '{}'", call.name);
    }
    return result.is_string() ? result.get<std::string>() : result.dump();
  } catch (const std::exception& error) {
    return fmt::format("error: {}", error.what());
  }
}

}  // namespace lily
