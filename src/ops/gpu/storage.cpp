#include "ops/gpu/storage.h"

#include <bit>

namespace lily::gpu {

std::shared_ptr<Buffer> waiting_buffer(Device& device, std::unique_ptr<Buffer> buffer) {
  return {buffer.release(), [&device](Buffer* old) {
            device.wait(device.submit());
            delete old;
          }};
}

std::shared_ptr<Buffer> BufferPool::take(std::size_t bytes) {
  const std::size_t step = std::max<std::size_t>(256, std::bit_ceil(bytes) / 8);  // few sizes, little waste
  const std::size_t size = (bytes + step - 1) / step * step;
  std::unique_ptr<Buffer> buffer;
  if (const auto found = free_.find(size); found != free_.end()) {
    buffer = std::move(found->second);
    free_.erase(found);
  } else {
    buffer = device_.allocate(size);
    bytes_ += size;
  }
  return {buffer.release(), [pool = shared_from_this()](Buffer* back) {
            pool->free_.emplace(back->size(), std::unique_ptr<Buffer>(back));
          }};
}

}  // namespace lily::gpu
