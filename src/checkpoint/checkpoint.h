// A checkpoint directory: config.json, model.safetensors.index.json (or one model.safetensors), shards, mapped
// read-only.
//
// Everything is checked when it is opened (header, dtype, shape, offsets, overlap, shard index) or asked for (name,
// expected shape); every failure is a lily::Error that names the file, the tensor, what was found and what was
// expected.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/tensor_view.h"
#include "model/config.h"

namespace lily {

class Checkpoint {
 public:
  /// `directory` holds the files. Tensor data is mapped, not read.
  static Checkpoint open(const std::filesystem::path& directory);
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  const std::filesystem::path& directory() const;
  const ModelConfig& config() const;

  /// All tensors by their names in the files (vision and mtp tensors too).
  std::span<const TensorView> tensors() const;
  /// Bytes of the text model's tensors: what running it needs in memory.
  std::uint64_t text_bytes() const;

  /// Text-model tensors by canonical name: "embed_tokens.weight", "layers.0.linear_attn.A_log", "norm.weight",
  /// "lm_head.scales". Both spellings in files are found: `language_model.model.*` / `language_model.lm_head.*` (MLX),
  /// `model.language_model.*` / `lm_head.*` (HF).
  bool has(std::string_view name) const;
  const TensorView& tensor(std::string_view name) const;

  /// bf16, f16 or f32 values widened to float32. `shape` is what the model needs.
  std::vector<float> floats(std::string_view name, std::initializer_list<std::int64_t> shape) const;

  /// `name` without ".weight": its codes, scales and biases, with bits and group from config.json's `quantization`
  /// (per-tensor overrides included). `experts` = 1 for a plain matrix [out, in], else the stack's height.
  QuantizedMatrix matrix(std::string_view name, std::int64_t experts, std::int64_t out, std::int64_t in) const;

 private:
  struct Impl;
  explicit Checkpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// A directory, a Hugging Face id in the local hub cache (HF_HUB_CACHE, HF_HOME, ~/.cache/huggingface), or "demo".
std::filesystem::path resolve_model(const std::string& directory_or_id);

}  // namespace lily
