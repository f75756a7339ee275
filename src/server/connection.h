// One accepted connection. A request's header is read as a whole, within limits of time, size and lines, before the
// HTTP library sees a byte of it: cpp-httplib has no such limits. Its body then has to come at a kilobyte per second.
// Bytes of a next request wait here until this one is answered.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/chunk_check.h"

namespace lily {

struct ConnectionLimits {
  std::chrono::seconds idle{10};     // before a request; clients' pools give up after 5
  std::chrono::seconds header{10};   // from a header's first byte to its last
  std::chrono::seconds silence{30};  // within a body, and of a client that does not take its response
  std::size_t header_bytes = std::size_t{32} << 10;
  int header_lines = 100;
};

using HeaderFields = std::vector<std::pair<std::string, std::string>>;  // names and values

/// How a request says where it ends, as far as this can be trusted.
struct RequestFraming {
  std::size_t length = 0;    // of the body
  bool chunked = false;      // it says its length as it comes
  bool reusable = true;      // after such a request the connection can serve another
  HeaderFields fields = {};  // filled by Connection::next_request
};

/// Reads what a header, with its empty line, says about its end. Throws ApiError (400, 431): more than `lines` lines, a
/// long one, one that is no "name: value", a line end without a carriage return, control characters, two hosts.
RequestFraming check_header(std::string_view header, int lines);

/// A request for "http://host/path", as a proxy would get it, becomes one for "/path" with that host as its Host.
/// Throws ApiError when there is no host, or what cannot be one. The header is one that passed check_header.
void to_origin_form(std::string& header);

/// All "Connection" lines become one in the words that the library knows: "close", "Keep-Alive", or none at all. The
/// header is one that passed check_header.
void to_one_connection_line(std::string& header);

/// Takes the "Range" lines out. A server may ignore them, and has to if they are not valid; the library answers those
/// with 416, and makes a page of a thousand ranges a thousand times as large. The header is one that passed
/// check_header.
void drop_ranges(std::string& header);

/// The fields as they were sent, without white space around their values. The header is one that passed check_header.
HeaderFields header_fields(std::string_view header);

class Connection {
 public:
  Connection(int socket, const ConnectionLimits& limits) : socket_(socket), limits_(limits) {}

  /// Waits until the next request's header is there; nothing when the client has closed or says nothing, or `ended`
  /// gives true. Throws ApiError: as check_header, or 408 and 431 for one that comes too slowly or is too large.
  std::optional<RequestFraming> next_request(const std::function<bool()>& ended);
  /// How much of the body was read.
  std::size_t body_taken() const { return taken_ - header_size_; }

  /// Some of the request's bytes, without trailers of a chunked body. 0: the client has closed; -1: it is too slow, or
  /// gone, or these are no chunks.
  std::ptrdiff_t read(std::span<char> bytes);
  /// Some of these; -1: the client takes nothing, or is gone.
  std::ptrdiff_t write(std::span<const char> bytes) const;
  bool is_readable() const;
  bool is_writable() const;
  int socket() const { return socket_; }

 private:
  using Clock = std::chrono::steady_clock;
  bool wait(short events, Clock::duration timeout) const;
  std::ptrdiff_t receive();
  std::ptrdiff_t receive_body();
  bool skip_trailers();
  bool body_line_is_too_long(std::span<const char> bytes);
  bool chunks_are_well(std::span<const char> bytes);

  int socket_;
  ConnectionLimits limits_;
  std::string buffer_;  // received; from position_ on not yet read
  std::size_t position_ = 0;
  std::size_t header_size_ = 0;  // of this request
  std::size_t taken_ = 0;        // of this request's bytes
  std::size_t line_ = 0;         // bytes that were read one by one since the last line feed
  std::optional<ChunkCheck> chunks_;
  bool trailers_skipped_ = false;
  Clock::time_point body_begin_{};  // when the header was there
};

}  // namespace lily
