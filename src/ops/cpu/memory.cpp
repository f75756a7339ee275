#include "ops/cpu/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "support/error.h"

namespace lily::cpu {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

}  // namespace

Pages::Pages(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* area = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (area == MAP_FAILED) throw_error("cannot reserve {} bytes of memory: {}", bytes, std::strerror(errno));
  data_ = static_cast<std::byte*>(area);
#if defined(MADV_HUGEPAGE)
  if (bytes >= kHugePage) madvise(area, bytes, MADV_HUGEPAGE);  // only a hint: without it the pages are small
#endif
}

Pages::~Pages() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

std::shared_ptr<Storage> TensorPool::allocate(std::size_t bytes) {
  // The smallest area that fits, unless it would waste more than it holds.
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->bytes() >= bytes && (best == free_.end() || it->bytes() < best->bytes())) best = it;
  }
  Pages pages;
  if (best != free_.end() && best->bytes() <= 2 * bytes + kHugePage) {
    pages = std::move(*best);
    free_.erase(best);
  } else {
    pages = Pages(std::max<std::size_t>(bytes, 1));
  }
  return std::make_shared<TensorStorage>(shared_from_this(), std::move(pages));
}

}  // namespace lily::cpu
