// The terminal that standard input and output are connected to: its size, its modes, and reading bytes as they are
// typed.
#pragma once

#include <termios.h>

#include <string>
#include <string_view>

#include "terminal/signals.h"

namespace lily {

class Terminal {
 public:
  /// Whether standard input and output are both a terminal, so that lines can be edited on it.
  static bool is_interactive();
  /// Whether text on this terminal may be dimmed and coloured: not with NO_COLOR, nor TERM=dumb.
  static bool has_style();

  /// Precondition: is_interactive(). Modes are restored at the end, or by an exit of the process through main.
  Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  ~Terminal();

  struct Size {
    int columns = 80;
    int rows = 24;
  };
  Size size() const;

  /// kEditing: every key comes as its bytes. kWaiting: Ctrl-C is a signal again; what is typed is not shown and stays
  /// for later.
  enum class Mode { kOriginal, kEditing, kWaiting };
  void set_mode(Mode mode);
  /// Stops this process as Ctrl-Z does, and goes on in the present mode when it is continued.
  void suspend();

  enum class Read { kBytes, kTimeout, kSignal, kEnd };
  /// Appends what is there to `bytes`, waiting at most `timeout_ms` for it (-1: without limit).
  Read read(std::string& bytes, int timeout_ms, SignalFlags& signals);
  void write(std::string_view text);

 private:
  struct termios original_ {};
  Mode mode_ = Mode::kOriginal;
};

}  // namespace lily
