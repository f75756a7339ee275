// Whether the client is still there. cpp-httplib 0.11 gives a handler no socket, so it is found by the peer's address.
#pragma once

#include <string>

namespace lily {

class ClientSocket {
 public:
  /// The socket of this process that is connected to the peer; where none is found it was reset: closed().
  ClientSocket(const std::string& remote_address, int remote_port);
  explicit ClientSocket(int descriptor) : descriptor_(descriptor) {}
  /// The peer has closed or reset the connection.
  bool closed() const;
  /// Sends no more. What the client still sends is read and thrown away for a moment: it would not see the response if
  /// the connection were cut while it is writing.
  void end() const;

 private:
  int descriptor_ = -1;
};

/// Shuts down every connection of this process that was accepted on `port`.
void cut_connections(int port);

}  // namespace lily
