// One line on a terminal that is overwritten as work goes on; nothing where stderr is not a terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace lily {

class ProgressLine {
 public:
  explicit ProgressLine(std::string what) : what_(std::move(what)) {}
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine() { clear(); }

  /// "writing 37%, 7.2 of 19.5 GB, 812 MB/s"; at most ten times a second.
  void show_bytes(std::uint64_t done, std::uint64_t total);
  /// "comparing [########            ] 1300 of 3500 positions, 812/s"; at most ten times a second.
  void show_count(std::int64_t done, std::int64_t total, std::string_view unit);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  bool due();
  double seconds() const { return std::chrono::duration<double>(shown_at_ - start_).count(); }

  std::string what_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point shown_at_;
  bool shown_ = false;
};

}  // namespace lily
