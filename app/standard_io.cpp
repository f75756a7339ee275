#include "standard_io.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "support/error.h"

namespace lily {

void keep_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest free number is `stream`. Reading gives an end, writing fails; errors have nowhere to go.
    if (open("/dev/null", stream == STDERR_FILENO ? O_WRONLY : O_RDONLY) != stream) return;
  }
}

void complain(std::string_view message, std::string_view hint) {
  std::string text = fmt::format("lily: {}\n", message);
  if (!hint.empty()) text += fmt::format("  {}\n", hint);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

std::string read_standard_input() {
  std::string input;
  std::array<char, 1 << 16> buffer;
  for (;;) {
    const ssize_t got = read(STDIN_FILENO, buffer.data(), buffer.size());
    if (got == 0) return input;
    if (got > 0) {
      input.append(buffer.data(), static_cast<std::size_t>(got));
    } else if (errno != EINTR) {
      throw_error("standard input: cannot be read: {}", std::strerror(errno));
    }
  }
}

void finish_standard_output() {
  errno = 0;
  std::cout.flush();
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.good()) return;
  throw_error("standard output: cannot be written{}{}", errno == 0 ? "" : ": ", errno == 0 ? "" : std::strerror(errno));
}

}  // namespace lily
