// What goes wrong with a request, as OpenAI's clients expect it: an HTTP status and {"error": {message, type, param,
// code}}.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "support/error.h"

namespace lily {

class ApiError : public Error {
 public:
  struct Kind {
    int status = 400;
    std::string type = "invalid_request_error";
    std::string code;  // empty: null
  };

  ApiError(Kind kind, const std::string& message, std::string param = {})
      : Error(message), kind_(std::move(kind)), param_(std::move(param)) {}

  int status() const { return kind_.status; }
  const std::string& type() const { return kind_.type; }

  nlohmann::ordered_json json() const {
    const auto or_null = [](const std::string& text) {
      return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
    };
    return {{"error",
             {{"message", what()}, {"type", kind_.type}, {"param", or_null(param_)}, {"code", or_null(kind_.code)}}}};
  }

 private:
  Kind kind_;
  std::string param_;
};

/// 400 about one field of the request.
inline ApiError bad_field(const std::string& param, const std::string& message) {
  return ApiError({}, param + ": " + message, param);
}

}  // namespace lily
