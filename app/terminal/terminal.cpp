#include "terminal/terminal.h"

#include <sys/ioctl.h>
#include <sys/select.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>

#include "support/error.h"

namespace lily {
namespace {

constexpr std::string_view kPasteOn = "\x1b[?2004h";
constexpr std::string_view kPasteOff = "\x1b[?2004l";

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && value[0] != '\0';
}

std::string_view term() {
  const char* value = std::getenv("TERM");
  return value != nullptr ? value : "";
}

}  // namespace

bool Terminal::is_interactive() {
  return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1 && term() != "dumb" && !term().empty();
}

bool Terminal::has_style() {
  return isatty(STDOUT_FILENO) == 1 && !is_set("NO_COLOR") && term() != "dumb" && !term().empty();
}

Terminal::Terminal() {
  if (tcgetattr(STDIN_FILENO, &original_) != 0) throw Error("cannot read the terminal's settings");
}

Terminal::~Terminal() {
  set_mode(Mode::kOriginal);
}

Terminal::Size Terminal::size() const {
  struct winsize window {};
  Size size;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 && window.ws_row > 0) {
    size = {window.ws_col, window.ws_row};
  }
  return size;
}

void Terminal::set_mode(Mode mode) {
  if (mode == mode_) return;
  struct termios settings = original_;
  if (mode != Mode::kOriginal) {
    settings.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | IEXTEN);
    settings.c_iflag &= ~static_cast<tcflag_t>(ICRNL | INLCR | IXON);
    settings.c_cc[VMIN] = 1;
    settings.c_cc[VTIME] = 0;
  }
  if (mode == Mode::kEditing) settings.c_lflag &= ~static_cast<tcflag_t>(ISIG);
  if (mode == Mode::kWaiting) settings.c_lflag |= NOFLSH;  // Ctrl-C must not drop what was typed before it
  if (mode == Mode::kEditing) write(kPasteOn);
  if (mode_ == Mode::kEditing) write(kPasteOff);
  while (tcsetattr(STDIN_FILENO, TCSADRAIN, &settings) != 0 && errno == EINTR) {
  }
  mode_ = mode;
}

void Terminal::suspend() {
  const Mode mode = mode_;
  set_mode(Mode::kOriginal);
  raise(SIGTSTP);
  set_mode(mode);
}

Terminal::Read Terminal::read(std::string& bytes, int timeout_ms, SignalFlags& signals) {
  const int wake = signals.wake_descriptor();
  fd_set sources;
  FD_ZERO(&sources);
  FD_SET(STDIN_FILENO, &sources);
  FD_SET(wake, &sources);
  struct timeval timeout {
    timeout_ms / 1000, (timeout_ms % 1000) * 1000
  };
  // Not poll(): on macOS it does not know every terminal.
  const int ready = select(wake + 1, &sources, nullptr, nullptr, timeout_ms < 0 ? nullptr : &timeout);
  if (ready == 0) return Read::kTimeout;
  if (ready < 0 && errno != EINTR) return Read::kEnd;
  if (ready < 0 || FD_ISSET(wake, &sources)) {
    signals.drain();
    return Read::kSignal;
  }
  std::array<char, 65536> buffer;
  const ssize_t size = ::read(STDIN_FILENO, buffer.data(), buffer.size());
  if (size < 0 && errno == EINTR) return Read::kSignal;
  if (size <= 0) return Read::kEnd;
  bytes.append(buffer.data(), static_cast<std::size_t>(size));
  return Read::kBytes;
}

void Terminal::write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;  // the terminal is gone: the next read says so
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace lily
