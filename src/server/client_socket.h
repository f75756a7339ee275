// Whether the client is still there. cpp-httplib 0.11 gives a handler no socket, so it is found by the peer's address.
#pragma once

#include <string>

namespace lily {

class ClientSocket {
 public:
  /// The socket of this process that is connected to the peer; where none is found, closed() stays false.
  ClientSocket(const std::string& remote_address, int remote_port);
  /// The peer has closed or reset the connection.
  bool closed() const;

 private:
  int descriptor_ = -1;
};

/// Shuts down every connection of this process that was accepted on `port`.
void cut_connections(int port);

}  // namespace lily
