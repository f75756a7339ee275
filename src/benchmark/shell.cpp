#include "benchmark/shell.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>
#include <thread>
#include <utility>

#include "support/error.h"

extern "C" char** environ;  // in no header on macOS

namespace lily {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kQuiet{100};  // how soon the limit is seen
constexpr std::chrono::milliseconds kLast{5};     // from the last output to the shell's end, mostly
constexpr std::chrono::seconds kFarewell{2};      // from the request to end until the end by force
constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};

// A signal handler can reach nothing but globals. It runs on any thread.
std::atomic<int> running_group = 0;  // 0: not started yet
std::atomic<int> caught_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free);

/// Who waits for the group ends it, with time to do so. A second signal ends it at once.
extern "C" void catch_signal(int signal) {
  const int saved = errno;
  const bool again = caught_signal.exchange(signal) != 0;
  if (again && running_group != 0) ::kill(-running_group, SIGKILL);
  errno = saved;
}

/// While it lives, the signals end the group; after it, they do what they did before.
class SignalsEndGroup {
 public:
  SignalsEndGroup() {
    caught_signal = 0;
    struct sigaction action {};
    action.sa_handler = catch_signal;
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      ::sigaction(kSignals[i], nullptr, &before_[i]);
      if (before_[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
    }
  }
  SignalsEndGroup(const SignalsEndGroup&) = delete;
  SignalsEndGroup& operator=(const SignalsEndGroup&) = delete;
  ~SignalsEndGroup() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
    if (const int signal = caught_signal.exchange(0); signal != 0) ::raise(signal);
  }

 private:
  std::array<struct sigaction, kSignals.size()> before_{};
};

/// The first and the last mebibyte of a text.
class HeadAndTail {
 public:
  void append(std::string_view more) {
    const std::size_t to_head = std::min(more.size(), kShellOutputEnd - head_.size());
    head_ += more.substr(0, to_head);
    tail_ += more.substr(to_head);
    if (tail_.size() > 2 * kShellOutputEnd) cut();
  }
  std::string take() {
    cut();
    return std::move(head_) + (dropped_ ? "\n" : "") + std::move(tail_);
  }

 private:
  void cut() {
    if (tail_.size() <= kShellOutputEnd) return;
    tail_.erase(0, tail_.size() - kShellOutputEnd);
    dropped_ = true;
  }

  std::string head_;
  std::string tail_;  // up to twice as long, so that it is moved rarely
  bool dropped_ = false;
};

class Pipe {
 public:
  Pipe() {
    if (::pipe(ends_.data()) != 0) throw_error("cannot make a pipe: {}", std::strerror(errno));
    for (const int end : ends_) ::fcntl(end, F_SETFD, FD_CLOEXEC);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close_writer();
    ::close(ends_[0]);
  }
  int writer() const { return ends_[1]; }
  void close_writer() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }
  /// Adds what comes within `timeout`; false when nobody can write any more.
  bool read(HeadAndTail& text, std::chrono::milliseconds timeout) const {
    pollfd one{.fd = ends_[0], .events = POLLIN, .revents = 0};
    if (::poll(&one, 1, static_cast<int>(timeout.count())) <= 0) return true;
    std::array<char, 4096> some;
    const ssize_t count = ::read(ends_[0], some.data(), some.size());
    if (count > 0) text.append({some.data(), static_cast<std::size_t>(count)});
    return count > 0 || (count < 0 && errno == EINTR);
  }

 private:
  std::array<int, 2> ends_{-1, -1};
};

/// Its process id, which is its group's too.
pid_t spawn_shell(const std::string& command, int output) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  std::string shell = "sh", option = "-c", text = command;
  char* arguments[] = {shell.data(), option.data(), text.data(), nullptr};
  pid_t process = 0;
  const int error = ::posix_spawn(&process, "/bin/sh", &files, &attributes, arguments, environ);
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) throw_error("cannot start '{}': {}", command, std::strerror(error));
  return process;
}

/// The process is left to be waited for, so that no other can have its id.
bool has_ended(pid_t process) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(process), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == process;
}

/// Until the shell has ended and its output too; false: not within `limit` (0: any time), or not before a signal.
bool read_to_end(pid_t shell, const Pipe& pipe, std::chrono::seconds limit, int signal, HeadAndTail& output) {
  const auto begin = Clock::now();
  for (bool open = true; open || !has_ended(shell);) {
    if (caught_signal != signal || (limit.count() > 0 && Clock::now() - begin >= limit)) return false;
    if (open) {
      open = pipe.read(output, kQuiet);
    } else {
      std::this_thread::sleep_for(kLast);
    }
  }
  return true;
}

}  // namespace

ShellResult run_shell(const std::string& command, std::chrono::seconds limit) {
  Pipe pipe;
  const SignalsEndGroup signals;
  const pid_t shell = spawn_shell(command, pipe.writer());
  running_group = shell;
  pipe.close_writer();
  ShellResult result;
  HeadAndTail output;
  if (!read_to_end(shell, pipe, limit, 0, output)) {
    const int signal = caught_signal;
    result.ended_late = signal == 0;
    ::kill(-shell, SIGTERM);
    read_to_end(shell, pipe, kFarewell, signal, output);
    ::kill(-shell, SIGKILL);
  }
  running_group = 0;  // another process may have its number soon
  while (::waitpid(shell, &result.status, 0) < 0 && errno == EINTR) continue;
  result.output = output.take();
  return result;
}

}  // namespace lily
