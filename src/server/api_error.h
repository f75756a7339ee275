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
      : Error(quotable(message)), kind_(std::move(kind)), param_(std::move(param)) {}

  int status() const { return kind_.status; }
  const std::string& type() const { return kind_.type; }

  /// In Anthropic's words, whose types depend on the status alone.
  nlohmann::ordered_json anthropic_json() const;

  nlohmann::ordered_json json() const {
    const auto or_null = [](const std::string& text) {
      return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
    };
    return {{"error",
             {{"message", what()}, {"type", kind_.type}, {"param", or_null(param_)}, {"code", or_null(kind_.code)}}}};
  }

 private:
  /// Messages quote the request, whose fields can be megabytes long.
  static std::string quotable(std::string message) {
    constexpr std::size_t kLongest = 1000;
    if (message.size() <= kLongest) return message;
    std::size_t end = kLongest;
    while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xC0U) == 0x80U) --end;  // inside of a character
    return message.substr(0, end) + "...";
  }

  Kind kind_;
  std::string param_;
};

inline nlohmann::ordered_json ApiError::anthropic_json() const {
  const auto type = [](int status) {
    switch (status) {
      case 401:
        return "authentication_error";
      case 403:
        return "permission_error";
      case 404:
        return "not_found_error";
      case 413:
        return "request_too_large";
      case 503:
        return "overloaded_error";
      default:
        return status < 500 ? "invalid_request_error" : "api_error";
    }
  };
  return {{"type", "error"}, {"error", {{"type", type(kind_.status)}, {"message", what()}}}};
}

/// 503, worth another try.
inline ApiError overloaded(const std::string& message) {
  return ApiError({.status = 503, .type = "server_error", .code = "overloaded"}, message);
}

/// 400 about one field of the request.
inline ApiError bad_field(const std::string& param, const std::string& message) {
  return ApiError({}, param + ": " + message, param);
}

}  // namespace lily
