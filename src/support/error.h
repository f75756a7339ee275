// The one error type for what a user or a file can cause. Caught in main() and in the request handler, nowhere else.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace lily {

/// Says what went wrong and where (`what()`), and what to do about it (`hint()`, may be empty). Zero bytes, which come
/// with what messages quote, are shown as "\0": what() would end there.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, std::string hint = {})
      : std::runtime_error(without_zeros(message)), hint_(without_zeros(std::move(hint))) {}
  const std::string& hint() const noexcept { return hint_; }

 private:
  static std::string without_zeros(std::string text) {
    for (std::size_t at = 0; (at = text.find('\0', at)) != std::string::npos;) text.replace(at, 1, "\\0");
    return text;
  }

  std::string hint_;
};

/// throw_error("{}: tensor '{}' has dtype {}, expected {}", file, name, found, expected);
template <typename... Args>
[[noreturn]] void throw_error(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

/// Ends the process with file and line: a broken invariant of our own, never bad input.
[[noreturn]] void invariant_broken(const char* condition, const char* file, int line) noexcept;

}  // namespace lily

#define LILY_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::lily::invariant_broken(#condition, __FILE__, __LINE__))
