// parse_shard_index on any bytes: it throws Error, or every file that it names is a plain name of this directory.
#include <cstdint>
#include <filesystem>

#include "checkpoint/shard_index.h"
#include "support/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    for (const auto& [name, file] : lily::parse_shard_index({reinterpret_cast<const char*>(data), size}, "input")) {
      const std::filesystem::path path(file);
      LILY_CHECK(path.filename() == path && file != "." && file != ".." && file.find('\0') == std::string::npos);
    }
  } catch (const lily::Error&) {
  }
  return 0;
}
