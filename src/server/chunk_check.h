// Follows a chunked body while its bytes pass: the HTTP library takes "0xf", "+f" and "-1" for sizes, and a chunk that
// does not end with a line end for the last one. Trailers are the library's business.
//
//   body = *(size [extension] CRLF data CRLF) "0" [extension] CRLF CRLF        size = 1 to 15 hexadecimal digits
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lily {

class ChunkCheck {
 public:
  /// Whether these bytes may come next. After false, nothing may.
  bool pass(std::string_view bytes);

 private:
  enum class Next { kSize, kExtension, kSizeEnd, kData, kDataReturn, kDataEnd, kEnd };
  bool pass_one(char c);

  Next next_ = Next::kSize;
  int digits_ = 0;
  std::uint64_t size_ = 0;  // what is left of the chunk
};

}  // namespace lily
