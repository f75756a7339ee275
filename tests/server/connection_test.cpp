#include "server/connection.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "server/api_error.h"

namespace lily {
namespace {

constexpr int kLines = 100;

int status_of(const std::string& header) {
  try {
    check_header(header, kLines);
    return 200;
  } catch (const ApiError& error) {
    return error.status();
  }
}

TEST(CheckHeader, LimitsAndStrictness) {
  const std::string get = "GET / HTTP/1.1\r\nHost: a\r\n";
  EXPECT_EQ(status_of(get + "\r\n"), 200);
  std::string many = get;
  for (int i = 1; i < kLines; ++i) many += "X: y\r\n";
  EXPECT_EQ(status_of(many + "\r\n"), 200);
  EXPECT_EQ(status_of(many + "X: y\r\n\r\n"), 431);
  EXPECT_EQ(status_of(get + "X: " + std::string(8187, 'y') + "\r\n\r\n"), 200);
  EXPECT_EQ(status_of(get + "X: " + std::string(8188, 'y') + "\r\n\r\n"), 431);
  for (const std::string line : {"Host: b\r\n", " folded: x\r\n", "X : y\r\n", ": y\r\n", "no colon\r\n", "X: a\n",
                                 "X: a\rb\r\n", "X: \x01\r\n", "\xff: x\r\n"}) {
    EXPECT_EQ(status_of(get + line + "\r\n"), 400) << line;
  }
  EXPECT_EQ(status_of(get + std::string("X: a\0b\r\n", 8) + "\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\n\r\n"), 400);
}

TEST(CheckHeader, WhetherTheConnectionIsReusable) {
  const auto framing = [](const std::string& method, const std::string& lines) {
    return check_header(method + " / HTTP/1.1\r\n" + lines + "\r\n", kLines);
  };
  EXPECT_TRUE(framing("GET", "").reusable);
  EXPECT_TRUE(framing("POST", "content-LENGTH: \t7 \r\n").reusable);
  EXPECT_EQ(framing("POST", "content-LENGTH: \t7 \r\n").length, 7);
  EXPECT_FALSE(framing("GET", "Content-Length: 7\r\n").reusable);
  EXPECT_FALSE(framing("POST", "").reusable);
  EXPECT_FALSE(framing("POST", "Content-Length: 7\r\nContent-Length: 7\r\n").reusable);
  for (const std::string length : {"", "-1", "+7", "7,7", "0x7", "99999999999999999999999"}) {
    EXPECT_FALSE(framing("POST", "Content-Length: " + length + "\r\n").reusable) << length;
  }
  EXPECT_FALSE(framing("POST", "Transfer-Encoding: chunked\r\n").reusable);
}

std::string in_origin_form(const std::string& request_line, const std::string& lines) {
  std::string header = request_line + "\r\n" + lines + "\r\n";
  to_origin_form(header);
  return header;
}

TEST(ToOriginForm, TakesTheHostFromTheTarget) {
  const auto check = [](const std::string& method, const std::string& target, const std::string& expected,
                        const std::string& host) {
    const std::string others = "X: y\r\nZ: host: z\r\n";
    const std::string wanted = method + " " + expected + " HTTP/1.1\r\nHost: " + host + "\r\n" + others + "\r\n";
    EXPECT_EQ(in_origin_form(method + " " + target + " HTTP/1.1", "X: y\r\nhost:other\r\nZ: host: z\r\n"), wanted);
    EXPECT_EQ(in_origin_form(method + " " + target + " HTTP/1.1", others), wanted);
  };
  check("GET", "http://127.0.0.1:8080/v1/models?a=http://b/", "/v1/models?a=http://b/", "127.0.0.1:8080");
  check("GET", "HTTP://a", "/", "a");
  check("GET", "http://a?b", "/?b", "a");
  check("GET", "http://[::1]:1#b", "/#b", "[::1]:1");
  check("OPTIONS", "http://a", "*", "a");
  check("OPTIONS", "http://a/", "/", "a");
  for (const std::string target : {"/http://a/", "*", "a:80", "https://a/", "http:/a/", ""}) {
    const std::string header = "GET " + target + " HTTP/1.1\r\nHost: other\r\n\r\n";
    EXPECT_EQ(in_origin_form("GET " + target + " HTTP/1.1", "Host: other\r\n"), header);
  }
  EXPECT_EQ(in_origin_form("GET http://a/b HTTP/1.0", ""), "GET /b HTTP/1.0\r\nHost: a\r\n\r\n");
  EXPECT_EQ(in_origin_form("GEThttp://a/b", ""), "GEThttp://a/b\r\n\r\n");
  EXPECT_EQ(in_origin_form("GET http://a", ""), "GET /\r\nHost: a\r\n\r\n");
  for (const char* host : {"", "[::1", "[::1]x", "a:x", "me@a", "[a]", ":80"}) {
    EXPECT_THROW(in_origin_form(std::string("GET http://") + host + "/b HTTP/1.1", ""), ApiError) << host;
  }
}

TEST(ToOneConnectionLine, ReadsLists) {
  const auto header = [](const std::string& lines) { return "GET / HTTP/1.1\r\n" + lines + "\r\n"; };
  const auto check = [&](const std::string& lines, const std::string& expected) {
    std::string sent = header("A: b\r\n" + lines + "X-Connection: close\r\n");
    to_one_connection_line(sent);
    EXPECT_EQ(sent, header(expected + "A: b\r\nX-Connection: close\r\n")) << lines;
  };
  const std::string close = "Connection: close\r\n";
  for (const std::string value : {"close", "Close", "CLOSE ", "close, TE", "keep-alive ,\tclose", ",close,"}) {
    check("cOnnection:" + value + "\r\n", close);
    check("Connection: keep-alive\r\nConnection: " + value + "\r\n", close);
    check("Connection: " + value + "\r\nConnection: x\r\n", close);
  }
  check("Connection: TE, keep-alive\r\n", "Connection: Keep-Alive\r\n");
  for (const std::string value : {"", ",", "TE", "clos%65", "close x", "\"close\"", "closed"}) {
    check("Connection: " + value + "\r\n", "");
  }
  std::string none = header("");
  to_one_connection_line(none);
  EXPECT_EQ(none, header(""));
}

TEST(Ranges, AreDropped) {
  std::string header =
      "GET / HTTP/1.1\r\nRange: bytes=0-1\r\nA: Range: b\r\nrANGE:zz\r\nrange:\r\nX-Range: c\r\nIf-Range: d\r\n\r\n";
  drop_ranges(header);
  EXPECT_EQ(header, "GET / HTTP/1.1\r\nA: Range: b\r\nX-Range: c\r\nIf-Range: d\r\n\r\n");
  drop_ranges(header);
  EXPECT_EQ(header, "GET / HTTP/1.1\r\nA: Range: b\r\nX-Range: c\r\nIf-Range: d\r\n\r\n");
  header = "GET / HTTP/1.1\r\nRange: x\r\n\r\n";
  drop_ranges(header);
  EXPECT_EQ(header, "GET / HTTP/1.1\r\n\r\n");
}

TEST(ChunkCheck, FollowsChunks) {
  const auto pass = [](std::string_view body, std::size_t piece) {
    ChunkCheck check;
    for (std::size_t at = 0; at < body.size(); at += piece) {
      if (!check.pass(body.substr(at, piece))) return false;
    }
    return true;
  };
  for (const std::size_t piece : {1, 2, 3, 100}) {
    for (const char* well :
         {"0\r\n\r\n", "3\r\nabc\r\n0A;x=y\r\n0123456789\r\n000\r\n\r\n", "1 \t\r\na\r\n0 ;a b\r\n\r\nmore", "f\r\n"}) {
      EXPECT_TRUE(pass(well, piece)) << well;
    }
    for (const char* wrong :
         {"zz", "\r\n", "-1\r\n", "+1\r\n", " 1\r\n", "0x1\r\na\r\n", "1\na\r\n", "1\r\naX", "1\r\na\n", "1\r\na\rX",
          "1\r\na\r\n\r\n", "1234567890123456\r\n", "1;a\n", "1\rx", "1 x\r\n", "1\t\tzz\r\n", "1 1\r\n", "1 \n"}) {
      EXPECT_FALSE(pass(wrong, piece)) << wrong;
    }
  }
}

TEST(HeaderFields, AreAsTheyWereSent) {
  const HeaderFields expected = {{"Host", "local%68ost"}, {"X-Key", "a%41+b : c"}, {"Empty", ""}, {"x-key", "d"}};
  EXPECT_EQ(header_fields("GET /%41 HTTP/1.1\r\nHost:local%68ost\r\nX-Key: \ta%41+b : c \r\nEmpty:\r\nx-key:d\r\n\r\n"),
            expected);
}

/// Both ends of a connection.
class ConnectionTest : public testing::Test {
 protected:
  ConnectionTest() { EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends_.data()), 0); }
  ~ConnectionTest() override {
    for (const int end : ends_) ::close(end);
  }
  void send(const std::string& bytes) const { EXPECT_EQ(::write(ends_[1], bytes.data(), bytes.size()), bytes.size()); }
  static bool never() { return false; }
  static std::string read_all(Connection& connection, std::size_t count) {
    std::string text(count, ' ');
    std::size_t done = 0;
    while (done < count) {
      const auto read = connection.read(std::span(text).subspan(done));
      if (read <= 0) break;
      done += static_cast<std::size_t>(read);
    }
    text.resize(done);
    return text;
  }

  std::array<int, 2> ends_{};
};

TEST_F(ConnectionTest, RequestsOneAfterTheOther) {
  const std::string first = "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n";
  const std::string second = "GET / HTTP/1.1\r\n\r\n";
  send("\r\n" + first + "abc\r\n" + second);
  Connection connection(ends_[0], {});
  ASSERT_TRUE(connection.next_request(never));
  EXPECT_EQ(read_all(connection, first.size() + 2), first + "ab");
  EXPECT_EQ(connection.body_taken(), 2);
  EXPECT_EQ(read_all(connection, 1), "c");
  ASSERT_TRUE(connection.next_request(never));
  EXPECT_EQ(read_all(connection, second.size()), second);
  EXPECT_EQ(connection.body_taken(), 0);
  ::shutdown(ends_[1], SHUT_WR);
  EXPECT_FALSE(connection.next_request(never));
}

TEST_F(ConnectionTest, TrailersAreDropped) {
  const std::string header = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  const std::string chunks = "3\r\nabc\r\n0\r\n";
  const auto read = [&](const std::string& trailers) {
    Connection connection(ends_[0], {.silence = std::chrono::seconds(1)});
    send(header);
    EXPECT_TRUE(connection.next_request(never));
    std::thread sends([&] {
      for (const char c : chunks + trailers) send({c});
    });
    std::string result;
    std::array<char, 1> byte{};
    while (!result.ends_with("0\r\n\r\n") && connection.read(byte) == 1) result += byte.front();
    sends.join();
    std::array<char, 65536> rest;
    while (::recv(ends_[0], rest.data(), rest.size(), MSG_DONTWAIT) > 0) continue;
    return result;
  };
  const std::string whole = header + chunks + "\r\n";
  EXPECT_EQ(read("\r\n"), whole);
  EXPECT_EQ(read("X-A: b\r\n\r\n"), whole);
  EXPECT_EQ(read("X-A: b\r\nc:\r\n\r\n"), whole);
  for (const std::string wrong :
       {"X-A: b\n\r\n", "no colon\r\n\r\n", " a: b\r\n\r\n", "a: b\r\n", "\n", ": b\r\n\r\n"}) {
    EXPECT_EQ(read(wrong), header + chunks) << wrong;
  }
  std::string many;
  for (int i = 0; i < 101; ++i) many += "X: y\r\n";
  EXPECT_EQ(read(many + "\r\n"), header + chunks);
  EXPECT_EQ(read("X: " + std::string(33000, 'x') + "\r\n\r\n"), header + chunks);
}

TEST_F(ConnectionTest, ATargetWithAHostIsAPathAndAHost) {
  send("POST http://b/ HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET");
  const std::string expected = "POST / HTTP/1.1\r\nHost: b\r\nContent-Length: 3\r\n\r\n";
  Connection connection(ends_[0], {});
  ASSERT_TRUE(connection.next_request(never));
  EXPECT_EQ(read_all(connection, expected.size() + 3), expected + "abc");
  EXPECT_EQ(connection.body_taken(), 3);
}

TEST_F(ConnectionTest, HeadersHaveLimitsOfTimeAndSize) {
  using std::chrono::seconds;
  Connection connection(ends_[0], {.idle = seconds(1), .header = seconds(1), .header_bytes = 100});
  EXPECT_FALSE(connection.next_request(never));  // says nothing
  EXPECT_FALSE(connection.next_request([] { return true; }));
  std::thread drips([this] {
    for (int i = 0; i < 20; ++i) {
      send("G");
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  });
  try {
    connection.next_request(never);
    ADD_FAILURE();
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 408);
  }
  drips.join();
  Connection another(ends_[0], {.header_bytes = 100});
  send("GET / HTTP/1.1\r\nX: " + std::string(100, 'x'));
  try {
    another.next_request(never);
    ADD_FAILURE();
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 431);
  }
}

TEST_F(ConnectionTest, BodiesThatDripOrHaveEndlessLinesEnd) {
  const std::string header = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  Connection connection(ends_[0], {.silence = std::chrono::seconds(1)});
  send(header);
  ASSERT_TRUE(connection.next_request(never));
  EXPECT_EQ(read_all(connection, header.size()), header);
  std::thread drips([this] {
    for (int i = 0; i < 20; ++i) {
      send("0");
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  });
  EXPECT_LT(read_all(connection, 20).size(), 20);
  drips.join();

  std::array<char, 64> rest;
  while (::recv(ends_[0], rest.data(), rest.size(), MSG_DONTWAIT) > 0) continue;
  Connection another(ends_[0], {});
  send(header + "1;" + std::string(10000, 'a'));
  ASSERT_TRUE(another.next_request(never));
  read_all(another, header.size());
  std::size_t line = 0;
  std::array<char, 1> byte{};
  while (another.read(byte) == 1) ++line;
  EXPECT_EQ(line, 8192);
}

}  // namespace
}  // namespace lily
