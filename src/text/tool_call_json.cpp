#include "text/tool_call_json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "support/error.h"

namespace lily {
namespace {

constexpr int kMaxDepth = 256;

std::string python_float(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  std::string text = fmt::format("{}", value);  // shortest that reads back, an exponent from 1e16 and below 1e-4
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

void print(const nlohmann::ordered_json& value, int depth, std::string& out) {
  if (depth > kMaxDepth) throw_error("JSON is nested deeper than {} levels", kMaxDepth);
  const char* separator = "";
  if (value.is_object()) {
    out += '{';
    for (const auto& [key, member] : value.items()) {
      out += separator + json_quoted(key) + ": ";
      print(member, depth + 1, out);
      separator = ", ";
    }
    out += '}';
  } else if (value.is_array()) {
    out += '[';
    for (const auto& element : value) {
      out += separator;
      print(element, depth + 1, out);
      separator = ", ";
    }
    out += ']';
  } else if (value.is_string()) {
    out += json_quoted(value.get_ref<const std::string&>());
  } else if (value.is_number_float()) {
    out += python_float(value.get<double>());
  } else {
    out += value.dump();
  }
}

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

// The string literal that begins at `begin` of valid JSON, quotes included.
std::string_view literal_at(std::string_view json, std::size_t begin) {
  std::size_t end = begin + 1;
  while (json[end] != '"') end += json[end] == '\\' ? 2 : 1;
  return json.substr(begin, end + 1 - begin);
}

std::string unquoted(std::string_view literal) {
  if (literal.find('\\') == std::string_view::npos) return std::string(literal.substr(1, literal.size() - 2));
  return nlohmann::json::parse(literal).get<std::string>();
}

// Where the value that begins at `begin` ends, inside an object of valid JSON: at the ',' or '}' that follows it.
std::size_t end_of_member(std::string_view json, std::size_t begin) {
  int depth = 0;
  for (std::size_t i = begin;; ++i) {
    const char c = json[i];
    if (depth == 0 && (c == ',' || c == '}')) return i;
    if (c == '"') i += literal_at(json, i).size() - 1;
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
  }
}

}  // namespace

std::string chat_json(const nlohmann::ordered_json& value) {
  std::string out;
  print(value, 0, out);
  return out;
}

std::string chat_json_text(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      const std::string_view literal = literal_at(text, i);
      out += json_quoted(unquoted(literal));
      i += literal.size() - 1;
    } else if (!is_space(c)) {
      out += c;
      if (c == ',' || c == ':') out += ' ';
    }
  }
  return out;
}

bool is_json(std::string_view text) {
  return !text.starts_with('\xef') && nlohmann::json::accept(text);  // the parser would skip a byte order mark
}

std::string json_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
  return out;
}

std::string json_quoted(std::string_view text) {
  return '"' + json_escaped(text) + '"';
}

std::string_view trim_json_space(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::optional<std::vector<ToolArgument>> split_arguments(std::string_view json) {
  json = trim_json_space(json);
  std::vector<ToolArgument> arguments;
  std::unordered_map<std::string, std::size_t> places;
  if (json.empty() || json == "null") return arguments;
  if (json.front() != '{' || !is_json(json)) return std::nullopt;
  std::size_t at = 1;
  const auto skip_space = [&] {
    while (is_space(json[at])) ++at;
  };
  for (skip_space(); json[at] != '}'; skip_space()) {
    if (json[at] == ',') ++at;
    skip_space();
    const std::string_view key = literal_at(json, at);
    at += key.size();
    skip_space();
    ++at;  // the colon
    const std::size_t end = end_of_member(json, at);
    const std::string_view value = trim_json_space(json.substr(at, end - at));
    at = end;
    ToolArgument argument{unquoted(key), value.front() == '"' ? unquoted(value) : chat_json_text(value)};
    const auto [place, is_new] = places.emplace(argument.name, arguments.size());
    if (is_new) {
      arguments.push_back(std::move(argument));
    } else {
      arguments[place->second] = std::move(argument);
    }
  }
  return arguments;
}

}  // namespace lily
