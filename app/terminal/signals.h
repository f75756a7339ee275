// Signals as flags that loops look at. Ctrl-C while an answer is written only stops the answer; a second one before the
// first was heeded ends the process as usual.
#pragma once

#include <csignal>
#include <vector>

namespace lily {

/// While it lives, signals set flags. One at a time.
class SignalFlags {
 public:
  /// `terminal`: modes of a terminal have to be restored, so SIGTERM and SIGHUP are flags too (otherwise they end the
  /// process), and a change of its size wakes who waits for input. Throws Error when the system has no descriptors
  /// left.
  explicit SignalFlags(bool terminal);
  SignalFlags(const SignalFlags&) = delete;
  SignalFlags& operator=(const SignalFlags&) = delete;
  ~SignalFlags();

  bool interrupted() const;  // SIGINT since the last clear
  void clear_interrupt();
  bool terminated() const;  // SIGTERM or SIGHUP

  /// A descriptor that is readable after each signal until it is drained. Polled together with the input: a signal that
  /// comes just before the wait would be missed otherwise.
  int wake_descriptor() const { return pipe_[0]; }
  void drain();

 private:
  struct Before {
    int signal;
    struct sigaction action;
  };
  std::vector<Before> before_;
  int pipe_[2] = {-1, -1};
};

}  // namespace lily
