#include "checkpoint/checkpoint.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "checkpoint/aligned.h"
#include "checkpoint/quantization.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/shard_index.h"
#include "support/error.h"
#include "support/json.h"
#include "support/mapped_file.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr const char* kSingleFile = "model.safetensors";

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

void require_directory(const fs::path& directory) {
  std::error_code ignored;
  if (!is_there(directory)) throw_error("{}: no such directory", directory.string());
  if (fs::is_directory(directory, ignored)) {
    if (is_there(directory / "config.json")) return;
    throw Error(fmt::format("{}: holds no config.json", directory.string()),
                "a checkpoint's directory holds config.json, tokenizer.json and safetensors files");
  }
  throw Error(fmt::format("{}: is a file, expected the directory of a checkpoint", directory.string()),
              "lily reads directories of safetensors files, no .gguf and no single file");
}

}  // namespace

struct Checkpoint::Impl {
  fs::path directory;
  ModelConfig config;
  Quantization quantization;
  std::vector<MappedFile> files;
  std::vector<TensorView> tensors;
  std::vector<std::size_t> file_of;                           // of each tensor
  std::unordered_map<std::string, std::size_t> by_canonical;  // text-model tensors

  explicit Impl(const fs::path& from) : directory(from), config(read_config(from)), quantization(from, config) {}

  std::string file_name(std::size_t tensor) const { return files[file_of[tensor]].path().string(); }

  void open_files() {
    const fs::path index = directory / kIndexFile;
    if (!is_there(index)) {
      if (!is_there(directory / kSingleFile)) {
        throw Error(fmt::format("{}: holds neither {} nor {}", directory.string(), kIndexFile, kSingleFile),
                    "the download may be incomplete");
      }
      map(kSingleFile);
      return;
    }
    const MappedFile mapped(index);
    const std::map<std::string, std::string> places = parse_shard_index(as_text(mapped.bytes()), index.string());
    std::map<std::string, std::size_t> shards;
    for (const auto& [name, file] : places) {
      if (shards.emplace(file, files.size()).second) map(file);
    }
    check_index(places, shards, index.string());
  }

  void map(const std::string& name) {
    const fs::path path = directory / name;
    if (!is_there(path)) {
      throw Error(fmt::format("{}: the shard is missing", path.string()), "the download may be incomplete");
    }
    files.emplace_back(path);
    for (TensorView& tensor : parse_safetensors(files.back().bytes(), path.string())) {
      tensors.push_back(std::move(tensor));
      file_of.push_back(files.size() - 1);
    }
  }

  /// Every tensor that the index names is in the file that it names.
  void check_index(const std::map<std::string, std::string>& places, const std::map<std::string, std::size_t>& shards,
                   const std::string& where) const {
    std::unordered_map<std::string_view, std::size_t> by_name;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const auto [it, fresh] = by_name.emplace(tensors[i].name, i);
      if (!fresh) {
        throw_error("{}: tensor '{}' is also in {}", file_name(i), printable(tensors[i].name), file_name(it->second));
      }
    }
    for (const auto& [name, file] : places) {
      const auto it = by_name.find(name);
      if (it == by_name.end() || file_of[it->second] != shards.at(file)) {
        throw Error(fmt::format("{}: tensor '{}' is not in {}, where {} places it", directory.string(), printable(name),
                                file, where),
                    "index and shards may be of different downloads");
      }
    }
  }

  void name_tensors() {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::string_view canonical = canonical_name(tensors[i].name);
      if (canonical.empty()) continue;
      const auto [it, fresh] = by_canonical.emplace(canonical, i);
      if (!fresh) {
        throw_error("{}: tensors '{}' and '{}' are the same part of the model", file_name(i),
                    printable(tensors[i].name), printable(tensors[it->second].name));
      }
    }
  }

  std::size_t find(std::string_view name) const {
    const auto it = by_canonical.find(std::string(name));
    if (it != by_canonical.end()) return it->second;
    throw Error(fmt::format("{}: tensor '{}' is missing (looked for as language_model.model.{} and "
                            "model.language_model.{})",
                            directory.string(), name, name, name),
                "the checkpoint may be incomplete or of another model");
  }

  void require_quantized() const {
    if (config.quantized) return;
    throw Error(fmt::format("{}: the weights are not quantised; lily runs MLX 4-bit checkpoints", directory.string()),
                fmt::format("make one with: lily convert {} OUT", directory.string()));
  }

  void require(std::size_t tensor, DType dtype, std::span<const std::int64_t> shape) const {
    const TensorView& view = tensors[tensor];
    if (view.dtype != dtype) {
      throw_error("{}: tensor '{}' has dtype {}, expected {}", file_name(tensor), printable(view.name),
                  dtype_name(view.dtype), dtype_name(dtype));
    }
    require_shape(tensor, shape);
  }

  void require_shape(std::size_t tensor, std::span<const std::int64_t> shape) const {
    const TensorView& view = tensors[tensor];
    if (std::equal(view.shape.begin(), view.shape.end(), shape.begin(), shape.end())) return;
    throw_error("{}: tensor '{}' has shape {}, expected {}", file_name(tensor), printable(view.name),
                shape_text(view.shape), shape_text(shape));
  }
};

Checkpoint::Checkpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Checkpoint Checkpoint::open(const fs::path& directory) {
  require_directory(directory);
  auto impl = std::make_unique<Impl>(directory);
  impl->open_files();
  impl->name_tensors();
  return Checkpoint(std::move(impl));
}

const fs::path& Checkpoint::directory() const {
  return impl_->directory;
}
const ModelConfig& Checkpoint::config() const {
  return impl_->config;
}
std::span<const TensorView> Checkpoint::tensors() const {
  return impl_->tensors;
}

std::uint64_t Checkpoint::text_bytes() const {
  std::uint64_t total = 0;
  for (const auto& [name, index] : impl_->by_canonical) total += impl_->tensors[index].bytes.size();
  return total;
}

bool Checkpoint::has(std::string_view name) const {
  return impl_->by_canonical.contains(std::string(name));
}

const TensorView& Checkpoint::tensor(std::string_view name) const {
  return impl_->tensors[impl_->find(name)];
}

std::vector<float> Checkpoint::floats(std::string_view name, std::initializer_list<std::int64_t> shape) const {
  const std::size_t index = impl_->find(name);
  const TensorView& view = impl_->tensors[index];
  if (view.dtype != DType::kBF16 && view.dtype != DType::kF16 && view.dtype != DType::kF32) {
    throw_error("{}: tensor '{}' has dtype {}, expected BF16, F16 or F32", impl_->file_name(index),
                printable(view.name), dtype_name(view.dtype));
  }
  impl_->require_shape(index, {shape.begin(), shape.size()});
  return widen(view);
}

QuantizedMatrix Checkpoint::matrix(std::string_view name, std::int64_t experts, std::int64_t out,
                                   std::int64_t in) const {
  impl_->require_quantized();
  const std::string base(name);
  const std::size_t weight = impl_->find(base + ".weight");
  if (impl_->tensors[weight].dtype == DType::kBF16 && !has(base + ".scales")) {
    throw_error("{}: tensor '{}' is plain BF16, expected MLX 4-bit or 8-bit codes with scales and biases",
                impl_->file_name(weight), printable(impl_->tensors[weight].name));
  }
  const std::size_t scales = impl_->find(base + ".scales");
  const std::size_t biases = impl_->find(base + ".biases");
  const int bits = impl_->quantization.bits(name);
  const int group = impl_->config.group_size;
  LILY_CHECK(in % group == 0);

  const bool stacked = impl_->tensors[weight].shape.size() == 3 || experts != 1;
  const auto require = [&](std::size_t tensor, DType dtype, std::int64_t columns) {
    const std::array<std::int64_t, 3> shape = {experts, out, columns};
    impl_->require(tensor, dtype, stacked ? std::span<const std::int64_t>(shape) : std::span(shape).subspan(1));
  };
  require(weight, DType::kU32, in * bits / 32);
  require(scales, DType::kBF16, in / group);
  require(biases, DType::kBF16, in / group);

  const AlignedParts parts({impl_->tensors[weight].bytes, impl_->tensors[scales].bytes, impl_->tensors[biases].bytes});
  return {.experts = experts,
          .out = out,
          .in = in,
          .bits = bits,
          .group = group,
          .codes = parts.as<std::uint32_t>(0),
          .scales = parts.as<BFloat16>(1),
          .biases = parts.as<BFloat16>(2),
          .owner = parts.owner(),
          .mapped = parts.owner() == nullptr};
}

}  // namespace lily
