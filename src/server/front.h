// The HTTP library's server over connections of ours (connection.h): limits on headers, header values as they were
// sent, which the library takes for parts of addresses and decodes, and the decision whether a connection can serve
// another request, which the library gives for bodies that were not read as well. Knows which socket a request came
// from, which the library does not tell. Knows the library's process_request of version 0.11 and of later ones.
#pragma once

#include <httplib.h>
#include <sys/socket.h>

#include <map>
#include <mutex>
#include <set>
#include <string>

#include "server/connection.h"

namespace lily {

class Front : public httplib::Server {
 public:
  static constexpr int kMostRequests = 1000;  // of one connection

  explicit Front(const ConnectionLimits& limits) : limits_(limits) {}

  /// Once bound: so many connections may wait until they are accepted. With the library's 5, bursts of clients are
  /// reset.
  void let_wait(int connections) { ::listen(svr_sock_, connections); }
  /// Of a request that is being served: until its handler and the writing of its response have ended.
  int socket_of(const httplib::Request& request) const;
  /// Of its body, which the library passes on as it comes. Several are joined by commas.
  std::string content_encoding(const httplib::Request& request) const;
  /// The connection ends with the response to this request.
  void close_after(const httplib::Request& request);
  /// Shuts down every connection that has a thread.
  void cut_connections();

 private:
  bool process_and_close_socket(socket_t socket) override;
  bool serve(Connection& connection);
  bool serve_request(Connection& connection, const RequestFraming& framing, bool last);

  struct Served {
    int socket = 0;
    std::string content_encoding;
    bool closes = false;
  };

  ConnectionLimits limits_;
  mutable std::mutex mutex_;
  std::set<int> connections_;
  std::map<const httplib::Request*, Served> requests_;
};

}  // namespace lily
