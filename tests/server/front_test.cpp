#include "server/front.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include <vector>

namespace lily {
namespace {

// A hundred clients that come before the first is accepted are all connected, none is turned away.
TEST(Front, LetsABurstOfClientsWait) {
  constexpr int kClients = 100;
  Front front(ConnectionLimits{});
  const int port = front.bind_to_any_port("127.0.0.1");
  ASSERT_GT(port, 0);
  front.let_wait(kClients);

  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  ASSERT_EQ(inet_pton(AF_INET, "127.0.0.1", &address.sin_addr), 1);
  std::vector<int> clients;
  for (int i = 0; i < kClients; ++i) {
    const int client = ::socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_GE(client, 0);
    ::fcntl(client, F_SETFL, O_NONBLOCK);
    ::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
    clients.push_back(client);
  }
  int connected = 0;
  for (const int client : clients) {
    pollfd wanted{.fd = client, .events = POLLOUT, .revents = 0};
    if (::poll(&wanted, 1, connected == 0 ? 2000 : 100) == 1 && wanted.revents == POLLOUT) ++connected;
    ::close(client);
  }
  EXPECT_EQ(connected, kClients);
}

}  // namespace
}  // namespace lily
