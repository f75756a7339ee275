// Ctrl-C and SIGTERM for commands that have something to clean up: they end as an error does, not at once.
#pragma once

namespace lily {

class Interrupt {
 public:
  /// From here on the signals are only noted.
  Interrupt();
  bool pending() const;
  /// When one has come: throws the end of the command with the shell's status for it (130 for Ctrl-C), having told why.
  void check() const;
};

}  // namespace lily
