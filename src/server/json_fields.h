// Reads the fields of a request's JSON object: types and ranges are checked, null counts as absent, every failure is a
// 400 that names the field, what was found and what is expected.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"

namespace lily {

/// Throws ApiError: no JSON, nested too deeply, objects with too many fields (400); too many values (413).
nlohmann::ordered_json parse_body(std::string_view body);

class JsonFields {
 public:
  using Json = nlohmann::ordered_json;

  /// `object` must outlive this. `path` is what the object is called in errors, e.g. "stream_options"; empty: the body.
  explicit JsonFields(const Json& object, std::string path = {});

  bool has(const char* name) const { return find(name) != nullptr; }
  /// The value, or nullptr where it is absent or null.
  const Json* find(const char* name) const;

  std::optional<bool> boolean(const char* name) const;
  std::optional<std::int64_t> integer(const char* name, std::int64_t least, std::int64_t most) const;
  std::optional<float> number(const char* name, double least, double most) const;
  std::optional<std::string> text(const char* name) const;
  /// One text or an array of texts.
  std::vector<std::string> texts(const char* name, std::size_t most) const;
  std::optional<JsonFields> object(const char* name) const;

  [[noreturn]] void fail(const char* name, const std::string& message) const;

 private:
  std::string path_of(const char* name) const { return path_.empty() ? name : path_ + "." + name; }
  [[noreturn]] void wrong_type(const char* name, const Json& found, const char* expected) const;

  const Json* object_;
  std::string path_;
};

}  // namespace lily
