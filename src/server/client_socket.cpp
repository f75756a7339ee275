#include "server/client_socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>

namespace lily {
namespace {

#ifdef POLLRDHUP
constexpr short kHungUp = POLLRDHUP;  // also when what the client sent before, a next request, was not read yet
#else
constexpr short kHungUp = 0;
#endif

}  // namespace

bool ClientSocket::closed() const {
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
  ::shutdown(descriptor_, SHUT_WR);
  std::array<char, 65536> ignored;
  pollfd poll_one{.fd = descriptor_, .events = POLLIN, .revents = 0};
  for (const auto begin = Clock::now(); Clock::now() - begin < kLongest;) {
    if (::poll(&poll_one, 1, 100) > 0 && ::recv(descriptor_, ignored.data(), ignored.size(), MSG_DONTWAIT) <= 0) break;
  }
  ::shutdown(descriptor_, SHUT_RDWR);
}

}  // namespace lily
