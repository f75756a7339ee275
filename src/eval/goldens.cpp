#include "eval/goldens.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "checkpoint/safetensors.h"
#include "support/error.h"
#include "support/mapped_file.h"

namespace lily {
namespace {

class GoldenFile {
 public:
  explicit GoldenFile(const std::filesystem::path& path)
      : file_(path), tensors_(parse_safetensors(file_.bytes(), path.string())) {}

  /// The values of a tensor; a negative size in `shape` takes what is there and is set to it.
  template <typename T>
  std::vector<T> values(const std::string& name, DType dtype, std::vector<std::int64_t> shape) const {
    const TensorView& tensor = find(name);
    if (tensor.dtype != dtype) {
      throw_error("{}: tensor '{}' has dtype {}, expected {}", where(), name, dtype_name(tensor.dtype),
                  dtype_name(dtype));
    }
    bool equal = tensor.shape.size() == shape.size();
    for (std::size_t i = 0; equal && i < shape.size(); ++i) equal = shape[i] < 0 || shape[i] == tensor.shape[i];
    if (!equal) {
      std::string expected = shape_text(shape);
      for (std::size_t at; (at = expected.find("-1")) != std::string::npos;) expected.replace(at, 2, "any");
      throw_error("{}: tensor '{}' has shape {}, expected {}", where(), name, shape_text(tensor.shape), expected);
    }
    std::vector<T> values(tensor.bytes.size() / sizeof(T));
    std::memcpy(values.data(), tensor.bytes.data(), values.size() * sizeof(T));
    return values;
  }
  std::vector<std::int32_t> ints(const std::string& name, std::vector<std::int64_t> shape) const {
    return values<std::int32_t>(name, DType::kI32, std::move(shape));
  }
  std::vector<float> floats(const std::string& name, std::vector<std::int64_t> shape) const {
    return values<float>(name, DType::kF32, std::move(shape));
  }

  /// Token ids, all of them below `vocab`.
  std::vector<std::int32_t> ids(const std::string& name, std::vector<std::int64_t> shape, std::int64_t vocab) const {
    std::vector<std::int32_t> ids = ints(name, std::move(shape));
    for (const std::int32_t id : ids) {
      if (id < 0 || id >= vocab) throw_error("{}: '{}' has id {}, expected 0 to {}", where(), name, id, vocab - 1);
    }
    return ids;
  }

  /// `tokens` cut at the ends that `name` holds, each piece at least `least` long.
  std::vector<std::vector<std::int32_t>> pieces(const std::vector<std::int32_t>& tokens, const std::string& name,
                                                std::int64_t least) const {
    std::vector<std::vector<std::int32_t>> pieces;
    std::int64_t begin = 0;
    for (const std::int64_t end : ints(name, {-1})) {
      if (end < begin + least || end > static_cast<std::int64_t>(tokens.size())) {
        throw_error("{}: '{}' has the end {}, expected {} to {}", where(), name, end, begin + least, tokens.size());
      }
      pieces.emplace_back(tokens.begin() + begin, tokens.begin() + end);
      begin = end;
    }
    if (begin != static_cast<std::int64_t>(tokens.size())) {
      throw_error("{}: '{}' ends at {}, expected {}", where(), name, begin, tokens.size());
    }
    return pieces;
  }

  std::int64_t columns(const std::string& name) const {
    const TensorView& tensor = find(name);
    if (tensor.shape.size() != 2 || tensor.shape[1] < 1) {
      throw_error("{}: tensor '{}' has shape {}, expected two dimensions", where(), name, shape_text(tensor.shape));
    }
    return tensor.shape[1];
  }
  std::string where() const { return file_.path().string(); }

 private:
  const TensorView& find(const std::string& name) const {
    const auto found =
        std::find_if(tensors_.begin(), tensors_.end(), [&](const TensorView& tensor) { return tensor.name == name; });
    if (found == tensors_.end()) {
      throw Error(fmt::format("{}: there is no tensor '{}'", where(), name),
                  "reference numbers are made by tools/goldens/make_goldens.py");
    }
    return *found;
  }

  MappedFile file_;
  std::vector<TensorView> tensors_;
};

void expect_shape(const GoldenFile& file, const ModelConfig& config) {
  const std::vector<std::int32_t> shape = file.ints("shape", {3});
  if (shape[0] == config.num_hidden_layers && shape[1] == config.hidden_size && shape[2] == config.vocab_size) return;
  throw Error(
      fmt::format("{}: made for a model of {} layers, hidden size {} and {} tokens, but this one has {}, {} and {}",
                  file.where(), shape[0], shape[1], shape[2], config.num_hidden_layers, config.hidden_size,
                  config.vocab_size),
      "give --goldens a file made from this model by tools/goldens/make_goldens.py");
}

GoldenRun read_run(const GoldenFile& file, const std::string& prefix, std::int64_t positions, std::int64_t top_k) {
  return {.top_logits = file.floats(prefix + "top_logits", {positions, top_k}),
          .target_logits = file.floats(prefix + "target_logits", {positions}),
          .logsumexp = file.floats(prefix + "logsumexp", {positions})};
}

std::vector<GoldenContinuation> read_continuations(const GoldenFile& file, std::int64_t vocab) {
  const auto prompts = file.pieces(file.ids("greedy_prompts", {-1}, vocab), "greedy_prompt_ends", 1);
  const auto count = static_cast<std::int64_t>(prompts.size());
  const std::int64_t length = file.columns("greedy_tokens");
  const std::vector<std::int32_t> tokens = file.ids("greedy_tokens", {count, length}, vocab);
  const std::vector<float> margins = file.floats("greedy_margins", {count, length});
  std::vector<GoldenContinuation> continuations;
  for (std::int64_t i = 0; i < count; ++i) {
    continuations.push_back({.prompt = prompts[static_cast<std::size_t>(i)],
                             .tokens = {tokens.begin() + i * length, tokens.begin() + (i + 1) * length},
                             .margins = {margins.begin() + i * length, margins.begin() + (i + 1) * length}});
  }
  return continuations;
}

}  // namespace

Goldens read_goldens(const std::filesystem::path& path, const ModelConfig& config) {
  const GoldenFile file(path);
  expect_shape(file, config);
  Goldens goldens;
  goldens.sequences = file.pieces(file.ids("tokens", {-1}, config.vocab_size), "ends", 2);
  for (const auto& tokens : goldens.sequences) goldens.positions += static_cast<std::int64_t>(tokens.size()) - 1;
  goldens.top_k = file.columns("top_ids");
  goldens.top_ids = file.ids("top_ids", {goldens.positions, goldens.top_k}, config.vocab_size);
  goldens.reference = read_run(file, "", goldens.positions, goldens.top_k);
  goldens.native = read_run(file, "native_", goldens.positions, goldens.top_k);
  goldens.native_top_id = file.ids("native_top_id", {goldens.positions}, config.vocab_size);
  goldens.continuations = read_continuations(file, config.vocab_size);
  return goldens;
}

}  // namespace lily
