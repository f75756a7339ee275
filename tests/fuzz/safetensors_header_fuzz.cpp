// parse_safetensors on any bytes: it throws Error, or what it gives agrees with itself and lies inside the file.
// The first byte chooses between the input as a whole file and the input as a header whose length and data are made up.
#include <cstdint>
#include <string>

#include "checkpoint/safetensors.h"
#include "support/error.h"

namespace {

std::string with_prefix(std::string_view header, std::size_t data_size) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>((std::uint64_t{header.size()} >> (8 * i)) & 0xff);
  return file.append(header).append(data_size, 'x');
}

void check(std::span<const std::byte> file, const std::vector<lily::TensorView>& tensors) {
  const std::byte* position = nullptr;
  for (const lily::TensorView& tensor : tensors) {
    LILY_CHECK(tensor.bytes.data() >= file.data() &&
               tensor.bytes.data() + tensor.bytes.size() <= file.data() + file.size());
    LILY_CHECK(position == nullptr || tensor.bytes.data() == position);
    position = tensor.bytes.data() + tensor.bytes.size();
    for (const std::int64_t dimension : tensor.shape) LILY_CHECK(dimension >= 0);
  }
  LILY_CHECK(position == nullptr || position == file.data() + file.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string file = data[0] % 2 == 0 ? std::string(input) : with_prefix(input, data[0]);
  const auto bytes = std::as_bytes(std::span(file.data(), file.size()));
  try {
    check(bytes, lily::parse_safetensors(bytes, "input"));
  } catch (const lily::Error&) {
  }
  return 0;
}
