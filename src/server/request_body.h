// The body of a request, within limits of size and time.
#pragma once

#include <chrono>
#include <optional>
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

/// The whole body, or nothing when the client broke it off. Throws ApiError: no length or two, a form, an encoding that
/// is not known, too large, too slow. The connection cannot serve another request then, since its bytes are still
/// there.
std::optional<std::string> read_body(const httplib::Request& request, const httplib::ContentReader& reader,
                                     const BodyLimits& limits);

}  // namespace lily
