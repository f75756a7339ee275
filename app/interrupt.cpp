#include "interrupt.h"

#include <CLI/CLI.hpp>
#include <csignal>

#include "standard_io.h"

namespace lily {
namespace {

volatile std::sig_atomic_t caught = 0;

}  // namespace

Interrupt::Interrupt() {
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, [](int number) { caught = number; });
}

bool Interrupt::pending() const {
  return caught != 0;
}

void Interrupt::check() const {
  if (caught == 0) return;
  complain("interrupted");
  throw CLI::RuntimeError(128 + caught);
}

}  // namespace lily
