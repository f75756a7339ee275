#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "device/emulated/fiber.h"
#include "device/emulated/sanitizers.h"
#include "support/error.h"

namespace lily::emulated {

GuardedMemory::GuardedMemory(std::size_t size, Guard guard) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  size_ = (size + page - 1) / page * page;
  mapping_size_ = size_ + page;
  void* mapping = mmap(nullptr, mapping_size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) throw_error("emulated device: no memory for {} bytes of stack", mapping_size_);
  mapping_ = static_cast<std::byte*>(mapping);
  data_ = guard == Guard::kBelow ? mapping_ + page : mapping_;
  mprotect(guard == Guard::kBelow ? mapping_ : mapping_ + size_, page, PROT_NONE);
}

GuardedMemory::GuardedMemory(GuardedMemory&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_size_(other.mapping_size_),
      data_(other.data_),
      size_(other.size_) {}

GuardedMemory::~GuardedMemory() {
  if (mapping_ == nullptr) return;
  unpoison(data_, size_);  // whoever is given the addresses next
  munmap(mapping_, mapping_size_);
}

void GuardedMemory::renew() {
  mmap(data_, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

}  // namespace lily::emulated
