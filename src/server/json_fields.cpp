#include "server/json_fields.h"

#include <cmath>
#include <limits>

#include "server/json_shape.h"

namespace lily {
namespace {

/// Some clients write whole numbers as 1.0.
bool is_whole(const nlohmann::ordered_json& value) {
  return value.is_number_integer() ||
         (value.is_number_float() && std::floor(value.get<double>()) == value.get<double>());
}

/// Nothing for what is no whole number of 64 bits.
std::optional<std::int64_t> whole_number(const nlohmann::ordered_json& value) {
  if (!is_whole(value)) return {};
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  if (value.is_number_float()) {
    const auto number = value.get<double>();
    if (!(number >= -kLimit && number < kLimit)) return {};
    return static_cast<std::int64_t>(number);
  }
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max()) return {};
  return value.get<std::int64_t>();
}

}  // namespace

nlohmann::ordered_json parse_body(std::string_view body) {
  using Json = nlohmann::ordered_json;
  const JsonShape shape = json_shape(body);
  if (shape.depth > kDeepestJson)
    throw ApiError({}, fmt::format("the request body is nested deeper than {} levels", kDeepestJson));
  if (shape.values > kMostJsonValues)
    throw ApiError({.status = 413}, fmt::format("the request body has more than {} JSON values", kMostJsonValues));
  if (shape.field_squares > kMostFieldSquares) throw ApiError({}, "the request body has objects of too many fields");
  try {
    return Json::parse(body);
  } catch (const Json::exception& error) {
    throw ApiError({}, fmt::format("the request body is not valid JSON: {}", error.what()));
  }
}

JsonFields::JsonFields(const Json& object, std::string path) : object_(&object), path_(std::move(path)) {
  if (!object.is_object()) {
    throw ApiError(
        {}, fmt::format("{} is {}, expected an object", path_.empty() ? "the request body" : path_, object.type_name()),
        path_);
  }
}

const JsonFields::Json* JsonFields::find(const char* name) const {
  const auto found = object_->find(name);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

std::optional<bool> JsonFields::boolean(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return {};
  if (!value->is_boolean()) wrong_type(name, *value, "a boolean");
  return value->get<bool>();
}

std::optional<std::int64_t> JsonFields::integer(const char* name, std::int64_t least, std::int64_t most) const {
  const Json* value = find(name);
  if (value == nullptr) return {};
  const std::optional<std::int64_t> number = whole_number(*value);
  if (!number && !is_whole(*value)) wrong_type(name, *value, "an integer");
  if (!number || *number < least || *number > most) {
    fail(name, fmt::format("is {}, expected {} to {}", value->dump(), least, most));
  }
  return number;
}

std::optional<float> JsonFields::number(const char* name, double least, double most) const {
  const Json* value = find(name);
  if (value == nullptr) return {};
  if (!value->is_number()) wrong_type(name, *value, "a number");
  const auto number = value->get<double>();
  if (!(number >= least && number <= most))
    fail(name, fmt::format("is {}, expected {} to {}", value->dump(), least, most));
  return static_cast<float>(number);
}

std::optional<std::string> JsonFields::text(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return {};
  if (!value->is_string()) wrong_type(name, *value, "a string");
  return value->get<std::string>();
}

std::vector<std::string> JsonFields::texts(const char* name, std::size_t most) const {
  const Json* value = find(name);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  if (!value->is_array()) wrong_type(name, *value, "a string or an array of strings");
  if (value->size() > most) fail(name, fmt::format("has {} entries, at most {} are allowed", value->size(), most));
  std::vector<std::string> texts;
  for (const Json& entry : *value) {
    if (!entry.is_string()) wrong_type(name, entry, "strings only");
    texts.push_back(entry.get<std::string>());
  }
  return texts;
}

std::optional<JsonFields> JsonFields::object(const char* name) const {
  const Json* value = find(name);
  if (value == nullptr) return {};
  if (!value->is_object()) wrong_type(name, *value, "an object");
  return JsonFields(*value, path_of(name));
}

void JsonFields::fail(const char* name, const std::string& message) const {
  throw ApiError({}, fmt::format("{} {}", path_of(name), message), path_of(name));
}

void JsonFields::wrong_type(const char* name, const Json& found, const char* expected) const {
  std::string shown = found.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr std::size_t kLongest = 60;
  if (shown.size() > kLongest) shown = std::string(found.type_name());
  fail(name, fmt::format("is {}, expected {}", shown, expected));
}

}  // namespace lily
