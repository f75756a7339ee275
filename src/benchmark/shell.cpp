#include "benchmark/shell.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

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
std::atomic<int> running_group = 0;        // 0: not started yet
std::atomic<int> early_signal = 0;         // that came before
struct sigaction before[kSignals.size()];  // what these signals did
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void end_group(int signal) {
  const int saved = errno;
  early_signal = signal;
  if (running_group != 0) {
    ::kill(-running_group, SIGTERM);
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      if (kSignals[i] == signal) ::sigaction(signal, &before[i], nullptr);
    }
    ::raise(signal);
  }
  errno = saved;
}

/// While it lives, the signals end the group first.
class SignalsEndGroup {
 public:
  SignalsEndGroup() {
    early_signal = 0;
    struct sigaction action {};
    action.sa_handler = end_group;
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
      ::sigaction(kSignals[i], nullptr, &before[i]);
      if (before[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
    }
  }
  SignalsEndGroup(const SignalsEndGroup&) = delete;
  SignalsEndGroup& operator=(const SignalsEndGroup&) = delete;
  ~SignalsEndGroup() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before[i], nullptr);
    running_group = 0;
  }
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
  bool read(std::string& text, std::chrono::milliseconds timeout) const {
    pollfd one{.fd = ends_[0], .events = POLLIN, .revents = 0};
    if (::poll(&one, 1, static_cast<int>(timeout.count())) <= 0) return true;
    std::array<char, 4096> some;
    const ssize_t count = ::read(ends_[0], some.data(), some.size());
    if (count > 0) text.append(some.data(), static_cast<std::size_t>(count));
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

/// Until the shell has ended and its output too; false: not within `limit`.
bool read_to_end(pid_t shell, const Pipe& pipe, std::chrono::seconds limit, std::string& output) {
  const auto begin = Clock::now();
  for (bool open = true; open || !has_ended(shell);) {
    if (limit.count() > 0 && Clock::now() - begin >= limit) return false;
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
  if (const int signal = early_signal; signal != 0) end_group(signal);
  pipe.close_writer();
  ShellResult result;
  if (!read_to_end(shell, pipe, limit, result.output)) {
    result.ended_late = true;
    ::kill(-shell, SIGTERM);
    read_to_end(shell, pipe, kFarewell, result.output);
    ::kill(-shell, SIGKILL);
  }
  while (::waitpid(shell, &result.status, 0) < 0 && errno == EINTR) continue;
  return result;
}

}  // namespace lily
