// Whether the client is still there, and a polite end of its connection.
//
// A client that has closed its side may still wait for its answer (shutdown(SHUT_WR), nc -N), or be gone: TCP tells the
// same of both. Only something that is sent to it makes the difference, since one that is gone answers with a reset.
#pragma once

#include <chrono>
#include <string_view>

namespace lily {

class ClientSocket {
 public:
  explicit ClientSocket(int descriptor) : descriptor_(descriptor) {}
  enum class State { kOpen, kHalfClosed, kGone };
  State state() const;
  /// Sends a few bytes, or none of them when they would have to wait.
  void say(std::string_view text) const;
  /// Sends no more. What the client still sends is read and thrown away for a moment: it would not see the response if
  /// the connection were cut while it is writing.
  void end() const;

 private:
  int descriptor_;
};

/// Looks after a client while its answer is made.
class ClientWatch {
 public:
  /// `again`: from one question to the next.
  ClientWatch(int descriptor, std::chrono::seconds again) : socket_(descriptor), again_(again) {}

  /// kAsk: it may be gone; the caller must send it something, and sees at one of the next looks whether it was.
  enum class Finding { kThere, kAsk, kGone };
  Finding look();
  const ClientSocket& socket() const { return socket_; }

 private:
  using Clock = std::chrono::steady_clock;
  ClientSocket socket_;
  std::chrono::seconds again_;
  Clock::time_point next_{};
};

}  // namespace lily
