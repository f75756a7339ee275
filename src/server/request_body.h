// The body of a request, within limits of size and time.
#pragma once

#include <chrono>
#include <string>

namespace httplib {
struct Request;
class ContentReader;
}  // namespace httplib

namespace lily {

struct BodyLimits {
  std::size_t bytes = 0;         // after decompression
  std::chrono::seconds timeout;  // the connection's limit of silence
};

/// The whole body, without its encoding, which `reader` must not undo. Throws ApiError: no length or two, a form, an
/// encoding that is not known, too large, too slow, cut short. The connection cannot serve another request then, since
/// its bytes are still there.
std::string read_body(const httplib::Request& request, const std::string& encoding,
                      const httplib::ContentReader& reader, const BodyLimits& limits);

}  // namespace lily
