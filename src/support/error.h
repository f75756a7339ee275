// The one error type for what a user or a file can cause. Caught in main() and in the request handler, nowhere else.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace lily {

/// Says what went wrong and where (`what()`), and what to do about it (`hint()`, may be empty).
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message, std::string hint = {})
      : std::runtime_error(message), hint_(std::move(hint)) {}
  const std::string& hint() const noexcept { return hint_; }

 private:
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
