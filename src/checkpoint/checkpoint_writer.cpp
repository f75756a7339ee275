#include "checkpoint/checkpoint_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "checkpoint/safetensors.h"
#include "support/error.h"

namespace lily {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint64_t kDataAlignment = 64;  // of each shard's data: GPUs map aligned tensors in place

[[noreturn]] void fail(const fs::path& path, const char* what, int error) {
  throw_error("{}: {}: {}", path.string(), what, std::generic_category().message(error));
}

/// A file that is written by position.
class OutputFile {
 public:
  explicit OutputFile(fs::path path)
      : path_(std::move(path)), descriptor_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)) {
    if (descriptor_ < 0) fail(path_, "cannot be made", errno);
  }
  OutputFile(OutputFile&& other) noexcept
      : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  void write(std::span<const std::byte> bytes, std::uint64_t offset) const {
    while (!bytes.empty()) {
      const ssize_t written = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) fail(path_, "cannot be written", written < 0 ? errno : ENOSPC);
      bytes = bytes.subspan(static_cast<std::size_t>(written));
      offset += static_cast<std::uint64_t>(written);
    }
  }
  void sync() const {
    if (::fsync(descriptor_) != 0) fail(path_, "cannot be written", errno);
  }

 private:
  fs::path path_;
  int descriptor_;
};

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

/// Length prefix and header, padded with spaces so that the data starts at a multiple of kDataAlignment.
std::string header_text(std::span<const TensorSpec> tensors) {
  json header = {{"__metadata__", {{"format", "mlx"}}}};
  std::uint64_t offset = 0;
  for (const TensorSpec& tensor : tensors) {
    header[tensor.name] = {{"dtype", dtype_name(tensor.dtype)},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, offset + tensor.bytes()}}};
    offset += tensor.bytes();
  }
  std::string text = header.dump();
  while ((text.size() + sizeof(std::uint64_t)) % kDataAlignment != 0) text += ' ';
  std::string prefix;
  for (std::size_t i = 0; i < sizeof(std::uint64_t); ++i) {
    prefix += static_cast<char>((static_cast<std::uint64_t>(text.size()) >> (8 * i)) & 0xff);
  }
  return prefix + text;
}

fs::path partial_of(const fs::path& directory) {
  fs::path plain = directory.lexically_normal();
  if (!plain.has_filename()) plain = plain.parent_path();  // "out/" is "out"
  if (!plain.has_filename()) throw_error("'{}' is no name for a directory", directory.string());
  return plain += ".partial";
}

std::string shard_name(std::size_t index, std::size_t shards) {
  if (shards == 1) return "model.safetensors";
  return fmt::format("model-{:05}-of-{:05}.safetensors", index + 1, shards);
}

}  // namespace

std::uint64_t TensorSpec::bytes() const {
  std::uint64_t size = dtype == DType::kF32 || dtype == DType::kU32 ? 4 : 2;
  for (const std::int64_t dimension : shape) size *= static_cast<std::uint64_t>(dimension);
  return size;
}

struct CheckpointWriter::Impl {
  struct Place {
    std::size_t shard = 0;
    std::uint64_t offset = 0;  // in the file
  };

  fs::path directory;
  fs::path partial;
  std::vector<TensorSpec> tensors;
  std::vector<Place> places;
  std::vector<OutputFile> shards;
  std::uint64_t total_bytes = 0;
  std::atomic<std::uint64_t> written_bytes{0};
  bool finished = false;

  void require_space() const {
    constexpr std::uint64_t kReserve = std::uint64_t{64} << 20;
    const std::uint64_t available = fs::space(partial).available;
    if (available >= total_bytes + kReserve) return;
    throw_error("{}: {:.0f} MB are needed, {:.0f} MB are free on this disk", directory.string(),
                static_cast<double>(total_bytes + kReserve) / 1e6, static_cast<double>(available) / 1e6);
  }

  /// First tensor of each shard, and the end.
  std::vector<std::size_t> shard_bounds(std::uint64_t shard_bytes) const {
    std::vector<std::size_t> bounds = {0};
    std::uint64_t size = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (size > 0 && size + tensors[i].bytes() > shard_bytes) {
        bounds.push_back(i);
        size = 0;
      }
      size += tensors[i].bytes();
    }
    bounds.push_back(tensors.size());
    return bounds;
  }

  void begin_shard(const std::string& name, std::size_t first, std::size_t last) {
    const std::string header = header_text(std::span(tensors).subspan(first, last - first));
    shards.emplace_back(partial / name);
    shards.back().write(as_bytes(header), 0);
    std::uint64_t offset = header.size();
    for (std::size_t i = first; i < last; ++i) {
      places.push_back({.shard = shards.size() - 1, .offset = offset});
      offset += tensors[i].bytes();
    }
  }
};

CheckpointWriter::CheckpointWriter(const fs::path& directory) : impl_(std::make_unique<Impl>()) {
  const fs::path partial = partial_of(directory);
  std::error_code error;
  if (fs::exists(directory, error) && !(fs::is_directory(directory, error) && fs::is_empty(directory, error))) {
    throw Error(fmt::format("{}: exists already", directory.string()), "give a new directory, or remove this one");
  }
  fs::create_directories(partial.parent_path().empty() ? fs::path(".") : partial.parent_path(), error);
  if (!fs::create_directory(partial, error)) {
    if (error) throw_error("{}: cannot be made: {}", directory.string(), error.message());
    throw Error(fmt::format("{}: exists already: another run is writing it, or one was interrupted", partial.string()),
                fmt::format("if none is running: rm -r {}", partial.string()));
  }
  impl_->directory = directory;
  impl_->partial = partial;
}

CheckpointWriter::~CheckpointWriter() {
  if (impl_->partial.empty() || impl_->finished) return;
  std::error_code ignored;
  fs::remove_all(impl_->partial, ignored);
}

const fs::path& CheckpointWriter::partial() const {
  return impl_->partial;
}

void CheckpointWriter::write_file(const std::string& name, std::string_view text) {
  const OutputFile file(impl_->partial / name);
  file.write(as_bytes(text), 0);
  file.sync();
}

void CheckpointWriter::begin_tensors(std::vector<TensorSpec> tensors, std::uint64_t shard_bytes,
                                     std::int64_t parameters) {
  LILY_CHECK(impl_->tensors.empty() && !tensors.empty());
  impl_->tensors = std::move(tensors);
  for (const TensorSpec& tensor : impl_->tensors) impl_->total_bytes += tensor.bytes();
  impl_->require_space();

  json map = json::object();
  const std::vector<std::size_t> bounds = impl_->shard_bounds(shard_bytes);
  for (std::size_t shard = 0; shard + 1 < bounds.size(); ++shard) {
    const std::string name = shard_name(shard, bounds.size() - 1);
    impl_->begin_shard(name, bounds[shard], bounds[shard + 1]);
    for (std::size_t i = bounds[shard]; i < bounds[shard + 1]; ++i) map[impl_->tensors[i].name] = name;
  }
  const json index = {{"metadata", {{"total_size", impl_->total_bytes}, {"total_parameters", parameters}}},
                      {"weight_map", std::move(map)}};
  write_file("model.safetensors.index.json", index.dump(2) + "\n");
}

void CheckpointWriter::write(std::size_t tensor, std::uint64_t offset, std::span<const std::byte> bytes) {
  const Impl::Place& place = impl_->places.at(tensor);
  LILY_CHECK(offset + bytes.size() <= impl_->tensors[tensor].bytes());
  impl_->shards[place.shard].write(bytes, place.offset + offset);
  impl_->written_bytes += bytes.size();
}

void CheckpointWriter::finish() {
  LILY_CHECK(impl_->written_bytes == impl_->total_bytes);
  for (const OutputFile& shard : impl_->shards) shard.sync();
  std::error_code error;
  fs::rename(impl_->partial, impl_->directory, error);
  if (error) throw_error("{}: cannot be renamed: {}", impl_->partial.string(), error.message());
  impl_->finished = true;
}

}  // namespace lily
