// read_config on any bytes: it throws Error, or every size derived from what it gives is positive and does not
// overflow.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "checkpoint/layout.h"
#include "checkpoint/quantization.h"
#include "model/memory_forecast.h"
#include "support/error.h"

namespace {

/// One directory for the whole run; config.json in it is rewritten for each input.
const std::filesystem::path& directory() {
  static const struct Directory {
    std::filesystem::path path;
    Directory() {
      const std::filesystem::path memory = "/dev/shm";  // several times the speed of a disk
      const auto parent = std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path();
      std::string pattern = (parent / "lily_fuzz_XXXXXX").string();
      if (::mkdtemp(pattern.data()) == nullptr) std::abort();
      path = pattern;
    }
    ~Directory() { std::filesystem::remove_all(path); }
  } kMade;
  return kMade.path;
}

void check(const lily::ModelConfig& config) {
  const lily::Quantization quantization(directory(), config);
  LILY_CHECK(quantization.bits("layers.0.mlp.gate") == 4 || quantization.bits("layers.0.mlp.gate") == 8);
  if (config.num_hidden_layers > 64) return;  // the same checks, only slower
  std::int64_t bytes = 0;
  for (const lily::LayoutEntry& entry : lily::text_layout(config)) {
    LILY_CHECK(entry.values() > 0 && entry.bytes() > 0);
    LILY_CHECK(entry.bits == 0 || entry.shape.back() % 64 == 0);
    bytes += entry.bytes();
  }
  const auto forecast = lily::forecast_memory(config, static_cast<std::uint64_t>(bytes), config.max_position_embeddings,
                                              lily::kCpuMemory);
  LILY_CHECK(forecast.total() > forecast.weights);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::ofstream(directory() / "config.json", std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  try {
    check(lily::read_config(directory()));
  } catch (const lily::Error&) {
  }
  return 0;
}
