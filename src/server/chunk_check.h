// Follows a chunked body while its bytes pass: the HTTP library takes "0xf", "+f" and "-1" for sizes, and a chunk that
// does not end with a line end for the last one. What follows the last chunk's size, trailers and an empty line, is not
// looked at.
//
//   body = *(size blanks [";" extension] CRLF data CRLF) "0" blanks [";" extension] CRLF ...
//   size = 1 to 15 hexadecimal digits, blanks = *(SP / HTAB)
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lily {

class ChunkCheck {
 public:
  /// Whether these bytes may come next. After false, nothing may.
  bool pass(std::string_view bytes);
  /// Whether the last chunk's size was there.
  bool at_trailers() const { return next_ == Next::kEnd; }

 private:
  enum class Next { kSize, kBlanks, kExtension, kSizeEnd, kData, kDataReturn, kDataEnd, kEnd };
  bool pass_one(char c);
  bool pass_after_size(char c);

  Next next_ = Next::kSize;
  int digits_ = 0;
  std::uint64_t size_ = 0;  // what is left of the chunk
};

}  // namespace lily
