// Writes a checkpoint directory: shards of safetensors, their index, and small files beside them.
//
// Everything goes to "<directory>.partial", which is renamed when all is written: an interrupted run leaves no
// directory that looks like a checkpoint. Tensor bytes are written in place and in any order, so memory stays small.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/tensor_view.h"

namespace lily {

struct TensorSpec {
  std::string name;  // as in the file
  DType dtype = DType::kBF16;
  std::vector<std::int64_t> shape;

  std::uint64_t bytes() const;
};

class CheckpointWriter {
 public:
  /// Throws Error when `directory` exists and is not an empty directory, or when a partial one is in the way.
  explicit CheckpointWriter(const std::filesystem::path& directory);
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;
  /// Without finish(): removes what was written.
  ~CheckpointWriter();

  /// Where the files are until finish().
  const std::filesystem::path& partial() const;

  void write_file(const std::string& name, std::string_view text);

  /// Distributes the tensors over shards of at most `shard_bytes` (a larger tensor gets its own), writes their headers
  /// and the index. `parameters` goes into the index's metadata. Once, before write(). Throws Error when the disk has
  /// too little space.
  void begin_tensors(std::vector<TensorSpec> tensors, std::uint64_t shard_bytes, std::int64_t parameters);

  /// Bytes of tensor number `tensor` from `offset` on. May be called from several threads.
  void write(std::size_t tensor, std::uint64_t offset, std::span<const std::byte> bytes);

  /// Every byte must have been written. Syncs and renames.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lily
