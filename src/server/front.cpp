#include "server/front.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <functional>

#include "server/api_error.h"
#include "server/client_socket.h"

namespace lily {
namespace {

/// Numeric address and port of one end.
template <typename NameOf>
void address_of(int socket, NameOf name_of, std::string& ip, int& port) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> service{};
  if (name_of(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
      ::getnameinfo(reinterpret_cast<sockaddr*>(&address), length, host.data(), host.size(), service.data(),
                    service.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return;
  }
  ip = host.data();
  port = std::atoi(service.data());
}

/// Not marked `override`: later versions of the library ask for more than the first one knows.
class ConnectionStream : public httplib::Stream {
 public:
  explicit ConnectionStream(Connection& connection) : connection_(connection) {}
  using httplib::Stream::write;
  bool is_readable() const { return connection_.is_readable(); }
  bool is_writable() const { return connection_.is_writable(); }
  bool wait_readable() const { return connection_.is_readable(); }
  bool wait_writable() const { return connection_.is_writable(); }
  ssize_t read(char* bytes, std::size_t size) { return connection_.read({bytes, size}); }
  ssize_t write(const char* bytes, std::size_t size) { return connection_.write({bytes, size}); }
  void get_remote_ip_and_port(std::string& ip, int& port) const { address_of(socket(), ::getpeername, ip, port); }
  void get_local_ip_and_port(std::string& ip, int& port) const { address_of(socket(), ::getsockname, ip, port); }
  socket_t socket() const { return connection_.socket(); }
  time_t duration() const { return 0; }

 private:
  Connection& connection_;
};

const char* reason(int status) {
  if (status == 408) return "Request Timeout";
  return status == 431 ? "Request Header Fields Too Large" : "Bad Request";
}

void refuse(const Connection& connection, const ApiError& error) {
  const std::string body = error.json().dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  const std::string answer = fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: {}\r\nConnection: "
      "close\r\n\r\n{}",
      error.status(), reason(error.status()), body.size(), body);
  connection.write(answer);
}

}  // namespace

bool Front::process_and_close_socket(socket_t socket) {
  Connection connection(socket, limits_);
  bool well = false;
  try {
    well = serve(connection);
  } catch (const ApiError& error) {
    refuse(connection, error);
  }
  ClientSocket(socket).end();
  ::close(socket);
  return well;
}

/// Until the connection is to be closed.
bool Front::serve(Connection& connection) {
  for (int count = 1; count <= kMostRequests; ++count) {
    const auto framing = connection.next_request([this] { return svr_sock_ == INVALID_SOCKET; });
    if (!framing) return true;
    if (!serve_request(connection, *framing, count == kMostRequests)) return false;
  }
  return true;
}

/// Whether the connection can serve another one.
bool Front::serve_request(Connection& connection, const RequestFraming& framing, bool last) {
  ConnectionStream stream(connection);
  const bool close = last || !framing.reusable;
  bool closed = false;
  bool parsed = false;
  const std::function<void(httplib::Request&)> on_parsed = [&parsed](httplib::Request& request) {
    parsed = true;
    request.ranges.clear();  // a thousand of them would make a page a thousand times as large
  };
  const auto process = [&](auto& server) {
    if constexpr (requires { server.Front::process_request(stream, close, closed, on_parsed); }) {
      return server.Front::process_request(stream, close, closed, on_parsed);
    } else {
      std::string remote, local;
      int remote_port = 0, local_port = 0;
      stream.get_remote_ip_and_port(remote, remote_port);
      stream.get_local_ip_and_port(local, local_port);
      return server.Front::process_request(stream, remote, remote_port, local, local_port, close, closed, on_parsed);
    }
  };
  return process(*this) && !closed && !close && parsed && connection.body_taken() == framing.length;
}

}  // namespace lily
