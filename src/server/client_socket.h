// Whether the client is still there, and a polite end of its connection.
#pragma once

namespace lily {

class ClientSocket {
 public:
  explicit ClientSocket(int descriptor) : descriptor_(descriptor) {}
  /// The peer has closed or reset the connection.
  bool closed() const;
  /// Sends no more. What the client still sends is read and thrown away for a moment: it would not see the response if
  /// the connection were cut while it is writing.
  void end() const;

 private:
  int descriptor_;
};

}  // namespace lily
