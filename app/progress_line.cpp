#include "progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace lily {

/// Whether the line may be drawn again; notes the time if so.
bool ProgressLine::due() {
  const Clock::time_point now = Clock::now();
  if (::isatty(STDERR_FILENO) == 0 || now - shown_at_ < std::chrono::milliseconds(100)) return false;
  shown_at_ = now;
  shown_ = true;
  return true;
}

void ProgressLine::show_bytes(std::uint64_t done, std::uint64_t total) {
  if (total == 0 || !due()) return;
  const auto bytes = static_cast<double>(done);
  fmt::print(stderr, "\r\x1b[K{} {:.0f}%, {:.1f} of {:.1f} GB, {:.0f} MB/s", what_,
             100 * bytes / static_cast<double>(total), bytes / 1e9, static_cast<double>(total) / 1e9,
             bytes / 1e6 / seconds());
  std::fflush(stderr);
}

void ProgressLine::show_count(std::int64_t done, std::int64_t total, std::string_view unit) {
  constexpr std::int64_t kWidth = 20;
  if (total <= 0 || !due()) return;
  const auto full = static_cast<std::size_t>(kWidth * std::clamp<std::int64_t>(done, 0, total) / total);
  fmt::print(stderr, "\r\x1b[K{} [{:<{}}] {} of {} {}, {:.0f}/s", what_, std::string(full, '#'), kWidth, done, total,
             unit, static_cast<double>(done) / seconds());
  std::fflush(stderr);
}

void ProgressLine::clear() {
  if (!shown_) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace lily
