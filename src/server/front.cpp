#include "server/front.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "server/api_error.h"
#include "server/ascii_text.h"
#include "server/client_socket.h"

namespace lily {
namespace {

/// Not marked `override`: later versions of the library ask for more than the first one knows.
// NOLINTBEGIN(modernize-use-override)
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
  void get_remote_ip_and_port(std::string&, int&) const {}  // nobody asks
  void get_local_ip_and_port(std::string&, int&) const {}
  socket_t socket() const { return connection_.socket(); }
  time_t duration() const { return 0; }

 private:
  Connection& connection_;
};
// NOLINTEND(modernize-use-override)

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

/// What the library shall see of an Accept-Encoding, in which it looks for names: those in it that are wanted, in small
/// letters. One with a weight of zero, or of none that is a number, is not.
std::string accepted_encodings(std::string_view list) {
  std::string accepted;
  while (!list.empty()) {
    const std::string item = ascii_lower(list.substr(0, list.find(',')));
    list.remove_prefix(std::min(item.size() + 1, list.size()));
    const std::size_t weight = item.find("q=", std::min(item.find(';'), item.size()));
    if (weight != std::string::npos && item.find_first_of("123456789", weight) == std::string::npos) continue;
    const std::size_t begin = std::min(item.find_first_not_of(" \t"), item.size());
    const std::string name = item.substr(begin, item.find_first_of(" \t;", begin) - begin);
    accepted += name + ", ";
  }
  return accepted;
}

/// Puts the values in that were sent, except for what the library only knows in small letters, or knows in HTTP/1.0
/// too, where nothing may come before the answer. Gives the Content-Encoding, which the library does not get to see: it
/// knows no capitals, and takes what is cut short for whole.
std::string take_fields(httplib::Request& request, const HeaderFields& fields) {
  constexpr const char* kEncoding = "Content-Encoding";
  request.headers.clear();
  for (const auto& [name, value] : fields) request.headers.emplace(name, value);
  if (const auto expect = request.headers.find("Expect"); expect != request.headers.end()) {
    constexpr const char* kContinue = "100-continue";
    if (ascii_lower(expect->second) == kContinue) expect->second = kContinue;
    if (request.version == "HTTP/1.0") request.headers.erase(expect);
  }
  std::string accepted;
  constexpr const char* kAccept = "Accept-Encoding";
  for (std::size_t i = 0; i < request.get_header_value_count(kAccept); ++i) {
    accepted += accepted_encodings(request.get_header_value(kAccept, i));
  }
  request.headers.erase(kAccept);
  if (!accepted.empty()) request.set_header(kAccept, accepted);
  std::string encoding;
  for (std::size_t i = 0; i < request.get_header_value_count(kEncoding); ++i) {
    encoding += (i == 0 ? "" : ", ") + request.get_header_value(kEncoding, i);
  }
  request.headers.erase(kEncoding);
  return encoding;
}

}  // namespace

int Front::socket_of(const httplib::Request& request) const {
  const std::lock_guard lock(mutex_);
  return requests_.at(&request).socket;
}

std::string Front::content_encoding(const httplib::Request& request) const {
  const std::lock_guard lock(mutex_);
  return requests_.at(&request).content_encoding;
}

void Front::close_after(const httplib::Request& request) {
  const std::lock_guard lock(mutex_);
  // One that the library refuses is not known here, and ends its connection anyhow.
  if (const auto found = requests_.find(&request); found != requests_.end()) found->second.closes = true;
}

void Front::cut_connections() {
  const std::lock_guard lock(mutex_);
  for (const int socket : connections_) ::shutdown(socket, SHUT_RDWR);
}

bool Front::process_and_close_socket(socket_t socket) {
  {
    const std::lock_guard lock(mutex_);
    connections_.insert(socket);
  }
  Connection connection(socket, limits_);
  bool well = false;
  try {
    well = serve(connection);
  } catch (const ApiError& error) {
    refuse(connection, error);
  }
  ClientSocket(socket).end();
  const std::lock_guard lock(mutex_);
  connections_.erase(socket);
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
  const httplib::Request* parsed = nullptr;
  const std::function<void(httplib::Request&)> on_parsed = [&](httplib::Request& request) {
    std::string encoding = take_fields(request, framing.fields);
    const std::lock_guard lock(mutex_);
    requests_[parsed = &request] = {.socket = connection.socket(), .content_encoding = std::move(encoding)};
  };
  const auto process = [&](auto& server) {
    if constexpr (requires { server.Front::process_request(stream, close, closed, on_parsed); }) {
      return server.Front::process_request(stream, close, closed, on_parsed);
    } else {
      return server.Front::process_request(stream, "", 0, "", 0, close, closed, on_parsed);
    }
  };
  const bool well = process(*this);
  if (parsed != nullptr) {
    const std::lock_guard lock(mutex_);
    closed = closed || requests_.at(parsed).closes;
    requests_.erase(parsed);
  }
  return well && !closed && !close && parsed != nullptr && connection.body_taken() == framing.length;
}

}  // namespace lily
