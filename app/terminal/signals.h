// Signals as flags that loops look at. Ctrl-C while an answer is written only stops the answer; a second one before the
// first was heeded ends the process as usual.
#pragma once

#include <signal.h>

#include <array>

namespace lily {

/// While it lives, SIGINT, SIGTERM and SIGHUP set flags, and SIGWINCH interrupts a wait for input. One at a time.
class SignalFlags {
 public:
  SignalFlags();
  SignalFlags(const SignalFlags&) = delete;
  SignalFlags& operator=(const SignalFlags&) = delete;
  ~SignalFlags();

  bool interrupted() const;  // SIGINT since the last clear
  void clear_interrupt();
  bool terminated() const;  // SIGTERM or SIGHUP

 private:
  static constexpr std::array<int, 4> kSignals = {SIGINT, SIGTERM, SIGHUP, SIGWINCH};
  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace lily
