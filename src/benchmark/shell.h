// A shell command with a limit of time. It runs in a process group of its own, so that all it has started can be ended.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace lily {

struct ShellResult {
  std::string output;       // its standard output, of a long one both ends; standard error is ours
  int status = 0;           // as waitpid gives it
  bool ended_late = false;  // by run_shell, after the limit
};

/// So many bytes of the beginning and of the end are kept; a line feed stands for what is not.
inline constexpr std::size_t kShellOutputEnd = std::size_t{1} << 20;

/// Runs `command` without input, for at most `limit` (0: any time), until the shell has ended and nobody can write any
/// more. SIGINT, SIGTERM and SIGHUP end the group too, before they do to this process what they did before. The group
/// is asked to end, and is killed after two seconds, or with a second signal. Throws Error when there is no process to
/// be had. Not for two threads at once.
ShellResult run_shell(const std::string& command, std::chrono::seconds limit);

}  // namespace lily
