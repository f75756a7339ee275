#include "server/client_socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace lily {
namespace {

constexpr int kMostDescriptors = 4096;
#ifdef POLLRDHUP
constexpr short kHungUp = POLLRDHUP;  // also when what the client sent before, a next request, was not read yet
#else
constexpr short kHungUp = 0;
#endif

bool is_peer(int descriptor, const std::string& address, int port) {
  sockaddr_storage peer{};
  socklen_t length = sizeof(peer);
  if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &length) != 0) return false;
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> service{};
  if (::getnameinfo(reinterpret_cast<sockaddr*>(&peer), length, host.data(), host.size(), service.data(),
                    service.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return false;
  }
  return address == host.data() && std::to_string(port) == service.data();
}

/// Whether it is a connection to `port` of this process.
bool is_connection_to(int descriptor, int port) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&address), &length) != 0) return false;
  length = sizeof(address);
  if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length) != 0) return false;
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port) == port;
  return address.ss_family == AF_INET6 && ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port) == port;
}

}  // namespace

void cut_connections(int port) {
  for (int descriptor = 3; descriptor < kMostDescriptors; ++descriptor) {
    if (is_connection_to(descriptor, port)) ::shutdown(descriptor, SHUT_RDWR);
  }
}

ClientSocket::ClientSocket(const std::string& remote_address, int remote_port) {
  for (int descriptor = 3; descriptor < kMostDescriptors; ++descriptor) {
    if (is_peer(descriptor, remote_address, remote_port)) {
      descriptor_ = descriptor;
      return;
    }
  }
}

bool ClientSocket::closed() const {
  // A connection that was reset has no peer any more, so that it was not found.
  if (descriptor_ < 0) return true;
  pollfd poll_one{.fd = descriptor_, .events = POLLIN | kHungUp, .revents = 0};
  if (::poll(&poll_one, 1, 0) <= 0) return false;
  if ((poll_one.revents & (POLLERR | POLLHUP | POLLNVAL | kHungUp)) != 0) return true;
  char byte = 0;
  const ssize_t received = ::recv(descriptor_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return received == 0 || (received < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

void ClientSocket::end() const {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kLongest{2};
  if (descriptor_ < 0) return;
  ::shutdown(descriptor_, SHUT_WR);
  std::array<char, 65536> ignored;
  pollfd poll_one{.fd = descriptor_, .events = POLLIN, .revents = 0};
  for (const auto begin = Clock::now(); Clock::now() - begin < kLongest;) {
    if (::poll(&poll_one, 1, 100) > 0 && ::recv(descriptor_, ignored.data(), ignored.size(), MSG_DONTWAIT) <= 0) break;
  }
  ::shutdown(descriptor_, SHUT_RDWR);
}

}  // namespace lily
