#include "terminal/signals.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "support/error.h"

namespace lily {
namespace {

// A signal handler can reach nothing but globals.
volatile sig_atomic_t interrupt_flag = 0;
volatile sig_atomic_t termination_flag = 0;
volatile sig_atomic_t wake_end = -1;

extern "C" void handle_signal(int signal) {
  const int saved = errno;
  if (signal == SIGINT) {
    if (interrupt_flag != 0) {
      ::signal(SIGINT, SIG_DFL);
      ::raise(SIGINT);
    }
    interrupt_flag = 1;
  } else if (signal != SIGWINCH) {
    termination_flag = 1;
  }
  // A full pipe wakes as well as one byte more.
  [[maybe_unused]] const ssize_t written = ::write(wake_end, "", 1);
  errno = saved;
}

}  // namespace

SignalFlags::SignalFlags(bool terminal) {
  interrupt_flag = 0;
  termination_flag = 0;
  if (pipe(pipe_) != 0) throw Error("cannot make a pipe: too many open files");
  for (const int end : pipe_) {
    fcntl(end, F_SETFL, O_NONBLOCK);
    fcntl(end, F_SETFD, FD_CLOEXEC);
  }
  wake_end = pipe_[1];
  struct sigaction action {};
  action.sa_handler = handle_signal;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) {
    if (!terminal && signal != SIGINT) continue;
    before_.push_back({signal, {}});
    sigaction(signal, &action, &before_.back().action);
  }
}

SignalFlags::~SignalFlags() {
  for (const Before& before : before_) sigaction(before.signal, &before.action, nullptr);
  wake_end = -1;
  for (const int end : pipe_) close(end);
}

bool SignalFlags::interrupted() const {
  return interrupt_flag != 0;
}

void SignalFlags::clear_interrupt() {
  interrupt_flag = 0;
}

bool SignalFlags::terminated() const {
  return termination_flag != 0;
}

void SignalFlags::drain() {
  std::array<char, 64> bytes;
  while (read(pipe_[0], bytes.data(), bytes.size()) > 0) {
  }
}

}  // namespace lily
