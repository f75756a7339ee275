#include "server/request_body.h"

#include <fmt/ranges.h>
#include <httplib.h>

#include <charconv>
#include <memory>

#include "server/api_error.h"
#include "server/ascii_text.h"
#include "server/body_decoder.h"

namespace lily {
namespace {

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

ApiError too_large_body(std::size_t most_bytes) {
  return {{.status = 413}, fmt::format("the request body is larger than {} bytes", most_bytes)};
}

/// Without a length the library reads until the client closes, and takes one that is no number for none. Two lengths
/// mean different bodies to different readers.
void check_framing(const httplib::Request& request, std::size_t most_bytes) {
  const std::size_t encodings = request.get_header_value_count("Transfer-Encoding");
  const bool chunked = encodings > 0;
  const std::size_t lengths = request.get_header_value_count("Content-Length");
  if (encodings > 1) throw ApiError({}, "the Transfer-Encoding is given twice");
  if (chunked && ascii_lower(request.get_header_value("Transfer-Encoding")) != "chunked")
    throw ApiError({.status = 501}, "the Transfer-Encoding is not supported, only chunked is");
  if (!chunked && lengths == 0) throw ApiError({.status = 411}, "the request has no Content-Length, and so no body");
  if (lengths > 1 || (chunked && lengths > 0)) throw ApiError({}, "the length of the request body is given twice");
  if (!chunked && !is_number(request.get_header_value("Content-Length")))
    throw ApiError({}, "the Content-Length is not a number");
  if (chunked) return;
  // The library would wait for all of it.
  const std::string length = request.get_header_value("Content-Length");
  std::size_t bytes = 0;
  const auto [end, error] = std::from_chars(length.data(), length.data() + length.size(), bytes);
  if (error != std::errc() || bytes > most_bytes) throw too_large_body(most_bytes);
}

ApiError encoding_error(int status, const std::string& what) {
  return {{.status = status}, fmt::format("{}; supported are {}", what, fmt::join(body_encodings(), ", "))};
}

}  // namespace

std::string read_body(const httplib::Request& request, const std::string& encoding,
                      const httplib::ContentReader& reader, const BodyLimits& limits) {
  using Result = BodyDecoder::Result;
  check_framing(request, limits.bytes);
  const std::unique_ptr<BodyDecoder> decoder = make_body_decoder(encoding);
  if (!decoder) throw encoding_error(415, "the Content-Encoding '" + encoding + "' is not supported");
  if (request.is_multipart_form_data()) throw ApiError({.status = 415}, "the request body is a form, expected JSON");
  const auto begin = std::chrono::steady_clock::now();
  std::string body;
  Result result = Result::kWell;
  const bool arrived = reader([&](const char* data, std::size_t length) {
    result = decoder->push({data, length}, body, limits.bytes);
    return result == Result::kWell;
  });
  if (result == Result::kTooLarge) throw too_large_body(limits.bytes);
  if (result == Result::kBroken) {
    throw encoding_error(400, "the request body is not what its Content-Encoding '" + encoding + "' says");
  }
  // The connection has given up waiting, or the client has.
  if (!arrived && std::chrono::steady_clock::now() - begin >= limits.timeout) {
    throw ApiError({.status = 408}, "the request body comes too slowly");
  }
  if (!arrived && request.has_header("Transfer-Encoding")) {
    throw ApiError({}, "the request body is cut short, or not made of chunks as its Transfer-Encoding says");
  }
  if (!arrived) throw ApiError({}, "the request body is cut short: it is not as long as its Content-Length says");
  if (!decoder->whole()) {
    throw encoding_error(400, "the request body is cut short: its Content-Encoding '" + encoding + "' goes on");
  }
  return body;
}

}  // namespace lily
