#include "server/client_socket.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace lily {
namespace {

// Where the system tells of a half-closed connection by itself, it does so even if what the client sent before, a next
// request, was not read yet; and a hang-up is more than that.
#ifdef POLLRDHUP
constexpr short kHalfHungUp = POLLRDHUP;
constexpr short kHungUp = POLLHUP;
#else
constexpr short kHalfHungUp = POLLHUP;
constexpr short kHungUp = 0;
#endif

bool has_error(int descriptor) {
  int error = 0;
  socklen_t size = sizeof(error);
  return ::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error != 0;
}

}  // namespace

ClientSocket::State ClientSocket::state() const {
  pollfd poll_one{.fd = descriptor_, .events = POLLIN | kHalfHungUp, .revents = 0};
  if (::poll(&poll_one, 1, 0) <= 0) return State::kOpen;
  if ((poll_one.revents & (POLLERR | POLLNVAL | kHungUp)) != 0 || has_error(descriptor_)) return State::kGone;
  if ((poll_one.revents & kHalfHungUp) != 0) return State::kHalfClosed;
  char byte = 0;
  const ssize_t received = ::recv(descriptor_, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (received == 0) return State::kHalfClosed;
  const bool failed = received < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR;
  return failed ? State::kGone : State::kOpen;
}

void ClientSocket::say(std::string_view text) const {
  ::send(descriptor_, text.data(), text.size(), MSG_DONTWAIT);
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

ClientWatch::Finding ClientWatch::look() {
  const ClientSocket::State state = socket_.state();
  if (state == ClientSocket::State::kGone) return Finding::kGone;
  const auto now = Clock::now();
  if (state == ClientSocket::State::kOpen || now < next_) return Finding::kThere;
  next_ = now + again_;
  return Finding::kAsk;
}

}  // namespace lily
