#include "server/chunk_check.h"

#include <algorithm>

namespace lily {
namespace {

/// -1: none.
int hexadecimal(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

bool ChunkCheck::pass(std::string_view bytes) {
  while (!bytes.empty() && next_ != Next::kEnd) {
    if (next_ == Next::kData) {
      const std::size_t count = std::min<std::uint64_t>(size_, bytes.size());
      size_ -= count;
      bytes.remove_prefix(count);
      if (size_ == 0) next_ = Next::kDataReturn;
    } else {
      if (!pass_one(bytes.front())) return false;
      bytes.remove_prefix(1);
    }
  }
  return true;
}

bool ChunkCheck::pass_after_size(char c) {
  const bool blank = c == ' ' || c == '\t';
  next_ = blank ? Next::kBlanks : c == '\r' ? Next::kSizeEnd : Next::kExtension;
  return blank || c == '\r' || c == ';';
}

bool ChunkCheck::pass_one(char c) {
  constexpr int kMostDigits = 15;
  switch (next_) {
    case Next::kSize:
      if (const int digit = hexadecimal(c); digit >= 0) {
        size_ = size_ * 16 + static_cast<std::uint64_t>(digit);
        return ++digits_ <= kMostDigits;
      }
      return digits_ > 0 && pass_after_size(c);
    case Next::kBlanks:
      return pass_after_size(c);
    case Next::kExtension:
      if (c == '\r') next_ = Next::kSizeEnd;
      return c != '\n';
    case Next::kSizeEnd:
      next_ = size_ == 0 ? Next::kEnd : Next::kData;
      return c == '\n';
    case Next::kDataReturn:
      next_ = Next::kDataEnd;
      return c == '\r';
    case Next::kDataEnd:
      next_ = Next::kSize;
      digits_ = 0;
      return c == '\n';
    default:
      return true;
  }
}

}  // namespace lily
