#include "terminal/signals.h"

namespace lily {
namespace {

// A signal handler can reach nothing but globals.
volatile sig_atomic_t interrupt_flag = 0;
volatile sig_atomic_t termination_flag = 0;

extern "C" void handle_signal(int signal) {
  if (signal == SIGINT) {
    if (interrupt_flag != 0) {
      ::signal(SIGINT, SIG_DFL);
      ::raise(SIGINT);
    }
    interrupt_flag = 1;
  } else if (signal != SIGWINCH) {
    termination_flag = 1;
  }
}

}  // namespace

SignalFlags::SignalFlags() {
  interrupt_flag = 0;
  termination_flag = 0;
  struct sigaction action {};
  action.sa_handler = handle_signal;
  sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &before_[i]);
}

SignalFlags::~SignalFlags() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
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

}  // namespace lily
