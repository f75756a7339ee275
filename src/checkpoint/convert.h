// Hugging Face's bf16 checkpoint -> MLX 4-bit, as `mlx_lm.convert -q --q-bits 4 --q-group-size 64` writes it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

namespace lily {

struct ConvertOptions {
  std::uint64_t shard_bytes = std::uint64_t{5} << 30;
  int threads = 1;
};

struct ConvertResult {
  std::uint64_t bytes = 0;   // of the tensors written
  std::size_t matrices = 0;  // quantised
  std::size_t left_out = 0;  // tensors of the vision tower and of multi-token prediction
};

/// Names are mapped, fused experts are split into gate, up and down, conv1d is transposed, norms that Hugging Face uses
/// as 1 + w get their 1, every matrix is quantised (routers to 8 bits); vision and mtp tensors are left out. Tokenizer
/// files are copied. A bf16 checkpoint in MLX's own layout is accepted too. Streams: memory stays small.
/// `progress(done, total)` counts bytes written.
ConvertResult convert_checkpoint(const std::filesystem::path& source, const std::filesystem::path& directory,
                                 const ConvertOptions& options,
                                 const std::function<void(std::uint64_t, std::uint64_t)>& progress = {});

}  // namespace lily
