#include "ops/profile.h"

#include <fmt/format.h>

namespace lily {

void Profile::add(std::string_view name, double seconds, double bytes, double operations) {
  for (Entry& entry : entries_) {
    if (entry.name != name) continue;
    ++entry.calls;
    entry.seconds += seconds;
    entry.bytes += bytes;
    entry.operations += operations;
    return;
  }
  entries_.push_back({std::string(name), 1, seconds, bytes, operations});
}

std::string Profile::table(double wall_seconds) const {
  std::string text = fmt::format("{:<18}{:>9}{:>8}{:>9}{:>12}{:>9}{:>9}\n", "op", "ms", "share", "calls", "us a call",
                                 "GB/s", "Gop/s");
  double rest = wall_seconds;
  const auto line = [&](const Entry& entry) {
    const double calls = static_cast<double>(entry.calls);
    text += fmt::format("{:<18}{:>9.2f}{:>7.1f}%{:>9}{:>12.1f}{:>9.1f}{:>9.1f}\n", entry.name, entry.seconds * 1e3,
                        entry.seconds / wall_seconds * 100, entry.calls, entry.seconds / calls * 1e6,
                        entry.bytes / entry.seconds / 1e9, entry.operations / entry.seconds / 1e9);
  };
  for (const Entry& entry : entries_) {
    line(entry);
    rest -= entry.seconds;
  }
  text += fmt::format("{:<18}{:>9.2f}{:>7.1f}%\n", "other", rest * 1e3, rest / wall_seconds * 100);
  text += fmt::format("{:<18}{:>9.2f}{:>7.1f}%\n", "wall", wall_seconds * 1e3, 100.0);
  return text;
}

}  // namespace lily
