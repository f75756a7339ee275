// A random checkpoint in the MLX 4-bit layout, for tests and benchmarks of any size.
//
// The weights are scaled so that activations stay of order one through any number of layers, routing is spread over all
// experts, and the recurrent state decays as in a trained model; the answers are noise. The same seed gives the same
// bytes on every machine and for any number of threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "model/config.h"

namespace lily {

struct SyntheticOptions {
  /// All sizes. `bits`, `group_size` and `eos_token_ids` are not taken from here: 4, 64 and the tokenizer's.
  ModelConfig config;
  std::uint64_t seed = 0;
  std::uint64_t shard_bytes = std::uint64_t{5} << 30;
  /// Its tokenizer and generation_config.json are copied when config.vocab_size covers them. Ids above the
  /// tokenizer's are never text. Empty: none.
  std::filesystem::path tokenizer_from;
  int threads = 1;
};

/// The sizes of Qwen3.6-35B-A3B.
ModelConfig full_size();

/// The sizes of the demo model: 8 layers, 24 million parameters.
ModelConfig demo_size();

struct SyntheticResult {
  std::uint64_t bytes = 0;  // of tensors
  bool tokenizer = false;   // was copied
};

/// Writes the directory; it appears under its name only when complete. `progress(done, total)` counts bytes and is
/// called from the calling thread. Throws Error when the sizes are not valid, as read_config does.
SyntheticResult write_synthetic(const std::filesystem::path& directory, const SyntheticOptions& options,
                                const std::function<void(std::uint64_t, std::uint64_t)>& progress = {});

}  // namespace lily
