// What was entered before, newest last, kept in a file of one entry a line (\n and \\ escaped), at most kMaxEntries of
// them. A convenience: a file that cannot be read or written is as good as none.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace lily {

class History {
 public:
  static constexpr std::size_t kMaxEntries = 1000;
  static constexpr std::size_t kLongestEntry = 65536;  // longer ones are kept for this run only

  History() = default;  // without a file
  explicit History(std::filesystem::path file);

  /// $XDG_STATE_HOME/lily/chat_history, or under ~/.local/state; empty when there is no home.
  static std::filesystem::path default_file();

  /// Ignores empty entries and repetitions of the last one.
  void add(const std::string& entry);
  const std::vector<std::string>& entries() const { return entries_; }

 private:
  std::filesystem::path file_;
  std::vector<std::string> entries_;
};

}  // namespace lily
