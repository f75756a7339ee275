#include "model/memory_forecast.h"

#include <gtest/gtest.h>

#include "checkpoint/test_files.h"

namespace lily {
namespace {

TEST(MemoryForecast, FullSizeNeedsWhatTheArchitectureSays) {
  const MemoryForecast forecast = forecast_memory(full_size(), 19'508'787'456, 4096, kGpuMemory);
  EXPECT_EQ(forecast.kv_cache, 4096U * 20480);  // 20 KiB a token in bf16
  EXPECT_EQ(forecast.recurrent_state, 30U * (32 * 128 * 128 + 3 * 8192) * 4);
  EXPECT_GT(forecast.activations, 4096U * 12352 * 4);  // at least the widest projection of a chunk
  EXPECT_LT(forecast.activations, 900'000'000U);       // 0.77 GiB were measured with chunks of 4096
  EXPECT_LT(forecast_memory(full_size(), 0, 4096, kCpuMemory).activations, 200'000'000U);  // chunks of 512
  EXPECT_EQ(forecast.total(), forecast.weights + forecast.kv_cache + forecast.recurrent_state + forecast.activations);
  EXPECT_EQ(forecast_memory(full_size(), 0, 1 << 18, kCpuMemory).kv_cache, std::uint64_t{20480} << 18);
  EXPECT_EQ(forecast_memory(full_size(), 0, 1 << 18, kExactCpuMemory).kv_cache, std::uint64_t{40960} << 18);
}

TEST(MemoryForecast, RefusesWithTheContextThatFits) {
  const ModelConfig config = full_size();
  constexpr std::uint64_t kWeights = 19'508'787'456;
  const std::uint64_t needed = forecast_memory(config, kWeights, 32768, kGpuMemory).total();
  require_memory(config, kWeights, 32768, kGpuMemory, needed);
  test::expect_error([&] { require_memory(config, kWeights, 32768, kGpuMemory, needed - 1); },
                     {"context of 32768", "21.0 GB", "context of 32512 tokens would fit: --ctx 32512"});
  test::expect_error([&] { require_memory(config, kWeights, 4096, kGpuMemory, 16'000'000'000); },
                     {"16.0 GB are available", "more memory"});
}

}  // namespace
}  // namespace lily
