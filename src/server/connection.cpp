#include "server/connection.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>

#include "server/access.h"
#include "server/api_error.h"
#include "server/ascii_text.h"

namespace lily {
namespace {

constexpr std::chrono::milliseconds kPoll{100};
constexpr std::size_t kLeastBytesPerSecond = 1024;
constexpr std::size_t kLongestHeaderLine = 8192;  // with its end; the library's limit, of which it says nothing
constexpr std::size_t kLongestBodyLine = 8192;    // a chunk's size with its extensions

bool is_token(std::string_view name) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !name.empty() && std::all_of(name.begin(), name.end(), [&](char c) {
    return is_ascii_alphanumeric(c) || kMarks.find(c) != std::string_view::npos;
  });
}

bool has_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return (byte < 0x20 && c != '\t') || byte == 0x7f;
  });
}

ApiError invalid(const char* what) {
  return {{}, std::string("the request is not valid HTTP: ") + what};
}

/// The line up to "\r\n", which are taken off `rest` with it.
std::string_view take_line(std::string_view& rest) {
  const std::size_t end = rest.find('\n');
  if (end == std::string_view::npos || end == 0 || rest[end - 1] != '\r') {
    throw invalid("a line does not end with carriage return and line feed");
  }
  const std::string_view line = rest.substr(0, end - 1);
  rest.remove_prefix(end + 1);
  if (has_control(line)) throw invalid("a control character in the header");
  return line;
}

std::string_view trimmed(std::string_view value) {
  value.remove_prefix(std::min(value.find_first_not_of(" \t"), value.size()));
  return value.substr(0, value.find_last_not_of(" \t") + 1);
}

void add_length(std::string_view value, bool first, RequestFraming& framing) {
  value = trimmed(value);
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), framing.length);
  if (!first || value.empty() || error != std::errc() || end != value.data() + value.size()) framing.reusable = false;
}

}  // namespace

RequestFraming check_header(std::string_view header, int lines) {
  RequestFraming framing;
  const std::string_view request_line = take_line(header);
  int lengths = 0;
  int hosts = 0;
  for (int count = 0;; ++count) {
    const std::string_view line = take_line(header);
    if (line.empty()) break;
    if (count == lines)
      throw ApiError({.status = 431}, fmt::format("the request has more than {} header lines", lines));
    if (line.size() + 2 > kLongestHeaderLine) {
      throw ApiError({.status = 431},
                     fmt::format("a line of the request's header is larger than {} bytes", kLongestHeaderLine));
    }
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) throw invalid("a header without a name");
    const std::string name = ascii_lower(line.substr(0, colon));
    if (name == "host" && ++hosts > 1) throw invalid("two hosts");
    if (name == "content-length") add_length(line.substr(colon + 1), ++lengths == 1, framing);
    if (name != "transfer-encoding") continue;
    framing.reusable = false;
    framing.chunked = ascii_lower(trimmed(line.substr(colon + 1))) == "chunked";
  }
  // A POST without a length, or a body of another method, which the library does not read.
  if (request_line.starts_with("POST ") ? lengths == 0 : framing.length > 0) framing.reusable = false;
  return framing;
}

void to_origin_form(std::string& header) {
  constexpr std::string_view kScheme = "http://";
  const std::size_t target = header.find(' ') + 1;
  const std::size_t line_end = header.find("\r\n");
  if (target == 0 || target > line_end || ascii_lower(header.substr(target, kScheme.size())) != kScheme) return;
  const std::size_t begin = target + kScheme.size();
  const std::size_t end = std::min(header.find_first_of("/?# \r", begin), line_end);
  const std::string host = header.substr(begin, end - begin);
  if (!host_name(host)) throw invalid("its target has no valid host");
  for (std::size_t line = line_end + 2; line < header.size(); line = header.find("\r\n", line) + 2) {
    if (ascii_lower(header.substr(line, 5)) != "host:") continue;
    header.erase(line, header.find("\r\n", line) + 2 - line);
    break;
  }
  header.insert(line_end + 2, "Host: " + host + "\r\n");
  const bool of_server = header.starts_with("OPTIONS ") && header[end] == ' ';
  if (header[end] != '/') header.insert(end, 1, of_server ? '*' : '/');
  header.erase(target, end - target);
}

void to_one_connection_line(std::string& header) {
  constexpr std::string_view kName = "connection:";
  const std::size_t first = header.find("\r\n") + 2;
  bool close = false;
  bool keep = false;
  for (std::size_t line = first; line < header.size();) {
    const std::size_t next = header.find("\r\n", line) + 2;
    if (ascii_lower(header.substr(line, kName.size())) != kName) {
      line = next;
      continue;
    }
    std::string_view options = std::string_view(header).substr(line + kName.size(), next - 2 - line - kName.size());
    while (!options.empty()) {
      const std::size_t end = std::min(options.find(','), options.size());
      const std::string option = ascii_lower(trimmed(options.substr(0, end)));
      close |= option == "close";
      keep |= option == "keep-alive";
      options.remove_prefix(std::min(end + 1, options.size()));
    }
    header.erase(line, next - line);
  }
  if (close || keep) header.insert(first, close ? "Connection: close\r\n" : "Connection: Keep-Alive\r\n");
}

void drop_ranges(std::string& header) {
  constexpr std::string_view kName = "range:";
  for (std::size_t line = header.find("\r\n") + 2; line < header.size();) {
    const std::size_t next = header.find("\r\n", line) + 2;
    if (ascii_lower(header.substr(line, kName.size())) == kName) {
      header.erase(line, next - line);
    } else {
      line = next;
    }
  }
}

HeaderFields header_fields(std::string_view header) {
  take_line(header);
  HeaderFields fields;
  for (std::string_view line = take_line(header); !line.empty(); line = take_line(header)) {
    const std::size_t colon = line.find(':');
    fields.emplace_back(line.substr(0, colon), trimmed(line.substr(colon + 1)));
  }
  return fields;
}

std::optional<RequestFraming> Connection::next_request(const std::function<bool()>& ended) {
  buffer_.erase(0, position_);
  position_ = 0;
  Clock::time_point begin = Clock::now();  // of the silence, then of the header
  bool begun = !buffer_.empty();
  for (std::size_t searched = 0;;) {
    while (buffer_.starts_with("\r\n")) buffer_.erase(0, 2);  // some clients end a body with one
    const std::size_t end = buffer_.find("\n\r\n", searched);
    const std::size_t size = end == std::string::npos ? buffer_.size() : end + 3;
    if (size > limits_.header_bytes) {
      throw ApiError({.status = 431},
                     fmt::format("the request's header is larger than {} bytes", limits_.header_bytes));
    }
    if (end != std::string::npos) {
      std::string header = buffer_.substr(0, size);
      RequestFraming framing = check_header(header, limits_.header_lines);
      to_origin_form(header);
      to_one_connection_line(header);
      drop_ranges(header);
      framing.fields = header_fields(header);
      buffer_.replace(0, size, header);
      header_size_ = header.size();
      taken_ = 0;
      line_ = 0;
      trailers_skipped_ = false;
      chunks_ = framing.chunked ? std::optional<ChunkCheck>(std::in_place) : std::nullopt;
      body_begin_ = Clock::now();
      return framing;
    }
    searched = buffer_.size() < 2 ? 0 : buffer_.size() - 2;
    const auto passed = Clock::now() - begin;
    if (begun && passed > limits_.header) throw ApiError({.status = 408}, "the request's header comes too slowly");
    if (ended() || (!begun && passed > limits_.idle)) return {};
    if (!wait(POLLIN, kPoll)) continue;
    if (receive() <= 0) return {};
    if (!begun) begin = Clock::now();
    begun = true;
  }
}

/// Lines within a body, the sizes of chunks, are read byte by byte; the library would keep an endless one.
bool Connection::body_line_is_too_long(std::span<const char> bytes) {
  const bool in_line = bytes.size() == 1 && bytes.front() != '\n';
  line_ = in_line ? line_ + 1 : 0;
  return line_ > kLongestBodyLine;
}

bool Connection::chunks_are_well(std::span<const char> bytes) {
  const std::size_t count = std::min(bytes.size(), body_taken());  // the rest is of the header
  const std::span<const char> of_body = bytes.last(count);
  return !chunks_ || chunks_->pass({of_body.data(), count});
}

/// More of a request whose header was there, behind what is not read yet; as read() in what it gives.
std::ptrdiff_t Connection::receive_body() {
  const auto allowed = limits_.silence + std::chrono::seconds(body_taken() / kLeastBytesPerSecond);
  const auto left = allowed - (Clock::now() - body_begin_);
  if (left <= Clock::duration::zero() || !wait(POLLIN, std::min<Clock::duration>(left, limits_.silence))) return -1;
  buffer_.erase(0, position_);
  position_ = 0;
  return receive();
}

/// Drops the lines between the last chunk and the empty line; the library would take them for a broken body. Their
/// limits are a header's. False: they are none, or their end does not come.
bool Connection::skip_trailers() {
  std::size_t size = 0;
  for (int count = 0;;) {
    const std::size_t end = buffer_.find('\n', position_);
    if (end == std::string::npos) {
      if (size + buffer_.size() - position_ > limits_.header_bytes || receive_body() <= 0) return false;
      continue;
    }
    const std::string_view line = std::string_view(buffer_).substr(position_, end + 1 - position_);
    if (line == "\r\n") return true;
    size += line.size();
    if (++count > limits_.header_lines || size > limits_.header_bytes || !line.ends_with("\r\n")) return false;
    if (!is_token(line.substr(0, std::min(line.find(':'), line.size())))) return false;
    position_ = end + 1;
  }
}

std::ptrdiff_t Connection::read(std::span<char> bytes) {
  if (chunks_ && chunks_->at_trailers() && !std::exchange(trailers_skipped_, true) && !skip_trailers()) return -1;
  if (position_ == buffer_.size()) {
    if (const std::ptrdiff_t received = receive_body(); received <= 0) return received;
  }
  const std::size_t count = std::min(bytes.size(), buffer_.size() - position_);
  std::copy_n(buffer_.data() + position_, count, bytes.data());
  position_ += count;
  taken_ += count;
  if (taken_ <= header_size_) return static_cast<std::ptrdiff_t>(count);
  if (body_line_is_too_long(bytes.first(count)) || !chunks_are_well(bytes.first(count))) return -1;
  return static_cast<std::ptrdiff_t>(count);
}

std::ptrdiff_t Connection::write(std::span<const char> bytes) const {
  if (!is_writable()) return -1;
  for (;;) {
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), 0);
    if (sent >= 0 || errno != EINTR) return sent;
  }
}

bool Connection::is_readable() const {
  return position_ < buffer_.size() || wait(POLLIN, limits_.silence);
}

bool Connection::is_writable() const {
  return wait(POLLOUT, limits_.silence);
}

bool Connection::wait(short events, Clock::duration timeout) const {
  const auto end = Clock::now() + timeout;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd one{.fd = socket_, .events = events, .revents = 0};
    const int ready = ::poll(&one, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

std::ptrdiff_t Connection::receive() {
  std::array<char, 16384> some;
  for (;;) {
    const ssize_t received = ::recv(socket_, some.data(), some.size(), 0);
    if (received > 0) buffer_.append(some.data(), static_cast<std::size_t>(received));
    if (received >= 0 || errno != EINTR) return received;
  }
}

}  // namespace lily
