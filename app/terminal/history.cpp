#include "terminal/history.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <system_error>
#include <utility>

#include "text/unicode.h"

namespace lily {
namespace {

std::string escaped(const std::string& entry) {
  std::string line;
  for (const char c : entry) {
    if (c == '\n') {
      line += "\\n";
    } else {
      if (c == '\\') line += c;
      line += c;
    }
  }
  return line + '\n';
}

std::string unescaped(const std::string& line) {
  std::string entry;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\' || i + 1 == line.size()) {
      entry += line[i];
    } else {
      ++i;
      entry += line[i] == 'n' ? '\n' : line[i];
    }
  }
  return replace_invalid_utf8(entry);
}

// Whole lines in one write, so that several processes can append to one file. Readable by the user alone.
bool write_file(const std::filesystem::path& file, const std::string& text, int flags) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
  if (descriptor < 0) return false;
  const bool written = ::write(descriptor, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  return ::close(descriptor) == 0 && written;
}

}  // namespace

History::History(std::filesystem::path file) : file_(std::move(file)) {
  if (file_.empty()) return;
  std::ifstream input(file_, std::ios::binary);
  std::size_t lines = 0;
  for (std::string line; std::getline(input, line); ++lines) {
    if (line.size() <= 2 * kLongestEntry) entries_.push_back(unescaped(line));
  }
  if (entries_.size() > kMaxEntries) entries_.erase(entries_.begin(), entries_.end() - kMaxEntries);
  if (lines < 2 * kMaxEntries) return;
  std::string kept;
  for (const std::string& entry : entries_) kept += escaped(entry);
  std::filesystem::path shorter = file_;
  shorter += fmt::format(".{}", ::getpid());
  std::error_code error;
  if (write_file(shorter, kept, O_TRUNC)) std::filesystem::rename(shorter, file_, error);
}

std::filesystem::path History::default_file() {
  const char* state = std::getenv("XDG_STATE_HOME");
  if (state != nullptr && state[0] == '/') return std::filesystem::path(state) / "lily" / "chat_history";
  const char* home = std::getenv("HOME");
  if (home == nullptr || home[0] == '\0') return {};
  return std::filesystem::path(home) / ".local" / "state" / "lily" / "chat_history";
}

void History::add(const std::string& entry) {
  if (entry.find_first_not_of(" \t\n") == std::string::npos) return;
  if (!entries_.empty() && entries_.back() == entry) return;
  entries_.push_back(entry);
  if (file_.empty() || entry.size() > kLongestEntry) return;
  std::error_code error;
  std::filesystem::create_directories(file_.parent_path(), error);
  write_file(file_, escaped(entry), O_APPEND);
}

}  // namespace lily
