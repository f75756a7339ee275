#include "progress_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

namespace lily {

void ProgressLine::show_bytes(std::uint64_t done, std::uint64_t total) {
  const Clock::time_point now = Clock::now();
  if (total == 0 || ::isatty(STDERR_FILENO) == 0 || now - shown_at_ < std::chrono::milliseconds(100)) return;
  shown_at_ = now;
  shown_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const auto bytes = static_cast<double>(done);
  fmt::print(stderr, "\r\x1b[K{} {:.0f}%, {:.1f} of {:.1f} GB, {:.0f} MB/s", what_,
             100 * bytes / static_cast<double>(total), bytes / 1e9, static_cast<double>(total) / 1e9,
             bytes / 1e6 / seconds);
  std::fflush(stderr);
}

void ProgressLine::clear() {
  if (!shown_) return;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace lily
