#include "checkpoint/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "checkpoint/affine_quantizer.h"
#include "checkpoint/aligned.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/mlx_format.h"
#include "checkpoint/parallel_items.h"
#include "checkpoint/quantization.h"
#include "checkpoint/safetensors.h"
#include "support/error.h"
#include "support/json.h"
#include "support/mapped_file.h"

namespace lily {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::int64_t kItemValues = std::int64_t{1} << 20;  // quantised at a time by one thread

/// Where a weight's rows lie in the source: [experts, source_rows, in], of which rows [first_row, first_row + rows).
struct RowSource {
  const TensorView* tensor = nullptr;
  std::int64_t source_rows = 0;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t in = 0;
};

/// One weight of the output: where it comes from and which tensors it becomes.
struct Weight {
  LayoutEntry entry;
  RowSource source;
  std::vector<TensorSpec> specs;
  std::size_t first_tensor = 0;  // number of specs[0] in the output
  bool plus_one = false;
};

/// A run of rows of one weight (of the stack's rows, for experts).
struct Item {
  std::size_t weight;
  std::int64_t first_row;
  std::int64_t rows;
};

class Planner {
 public:
  explicit Planner(const Checkpoint& source) : source_(source) {
    const ModelConfig& c = source.config();
    const std::string conv = "layers.0.linear_attn.conv1d.weight";
    huggingface_ = c.full_attention(0) || source.tensor(conv).shape.back() != 1;
  }

  std::vector<Weight> plan() const {
    std::vector<Weight> weights;
    std::size_t next = 0;
    for (const LayoutEntry& entry : text_layout(source_.config())) {
      Weight weight = entry.bits == 0 ? plain(entry) : matrix(entry);
      weight.first_tensor = next;
      next += weight.specs.size();
      weights.push_back(std::move(weight));
    }
    return weights;
  }

 private:
  Weight plain(const LayoutEntry& entry) const {
    const TensorView& tensor = source_.tensor(entry.name);
    std::vector<std::int64_t> shape = entry.shape;
    // [channels, 1, kernel] becomes [channels, kernel, 1]: the same values in the same order.
    if (huggingface_ && entry.name.ends_with("conv1d.weight")) std::swap(shape[1], shape[2]);
    require(tensor, shape);
    Weight weight{.entry = entry, .source = {.tensor = &tensor}, .specs = mlx_tensors(entry)};
    if (entry.name.ends_with("A_log")) weight.specs[0].dtype = tensor.dtype;  // MLX keeps it as it is
    weight.plus_one = huggingface_ && uses_one_plus_weight(entry.name);
    return weight;
  }

  /// Hugging Face's norms multiply by 1 + weight, all but the gated norm of the delta rule.
  static bool uses_one_plus_weight(std::string_view name) {
    return name.ends_with("norm.weight") && !name.ends_with("linear_attn.norm.weight");
  }

  Weight matrix(const LayoutEntry& entry) const {
    Weight weight{.entry = entry, .source = {}, .specs = mlx_tensors(entry)};
    RowSource& source = weight.source;
    const bool stacked = entry.shape.size() == 3;
    source.in = entry.shape.back();
    source.rows = entry.shape[entry.shape.size() - 2];
    source.source_rows = source.rows;
    std::string name = entry.name + ".weight";
    const std::size_t experts = entry.name.find("switch_mlp.");
    if (experts != std::string::npos && !source_.has(name)) {
      const std::string fused = entry.name.substr(0, experts) + "experts.";
      const bool down = entry.name.ends_with("down_proj");
      name = fused + (down ? "down_proj" : "gate_up_proj");
      if (!down) source.source_rows = 2 * source.rows;  // gate's rows, then up's
      if (entry.name.ends_with("up_proj")) source.first_row = source.rows;
    }
    source.tensor = &source_.tensor(name);
    std::vector<std::int64_t> shape = {source.source_rows, source.in};
    if (stacked) shape.insert(shape.begin(), entry.shape[0]);
    require(*source.tensor, shape);
    return weight;
  }

  void require(const TensorView& tensor, const std::vector<std::int64_t>& shape) const {
    const std::string where = fmt::format("{}: tensor '{}'", source_.directory().string(), printable(tensor.name));
    if (tensor.dtype != DType::kBF16 && tensor.dtype != DType::kF16 && tensor.dtype != DType::kF32) {
      throw_error("{} has dtype {}, expected BF16, F16 or F32", where, dtype_name(tensor.dtype));
    }
    if (tensor.shape != shape) {
      throw_error("{} has shape {}, expected {}", where, shape_text(tensor.shape), shape_text(shape));
    }
  }

  const Checkpoint& source_;
  bool huggingface_ = true;  // the source has Hugging Face's conventions, not MLX's
};

std::vector<Item> items_of(const std::vector<Weight>& weights) {
  std::vector<Item> items;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const LayoutEntry& entry = weights[i].entry;
    if (entry.bits == 0) {
      items.push_back({.weight = i, .first_row = 0, .rows = 0});
      continue;
    }
    const std::int64_t rows = weights[i].source.rows;
    const std::int64_t step = std::clamp<std::int64_t>(kItemValues / weights[i].source.in, 1, rows);
    for (std::int64_t expert = 0; expert < entry.values() / (rows * weights[i].source.in); ++expert) {
      for (std::int64_t row = 0; row < rows; row += step) {
        items.push_back({.weight = i, .first_row = expert * rows + row, .rows = std::min(step, rows - row)});
      }
    }
  }
  return items;
}

/// The rows' values, rounded to bf16 as MLX does before it quantises.
std::vector<float> read_rows(const RowSource& source, std::int64_t first_row, std::int64_t rows,
                             const std::string& where) {
  const std::int64_t expert = first_row / source.rows;
  const std::int64_t row = expert * source.source_rows + source.first_row + first_row % source.rows;
  const std::size_t width = source.tensor->dtype == DType::kF32 ? 4 : 2;
  TensorView view{.name = {}, .dtype = source.tensor->dtype, .shape = {}, .bytes = {}};
  view.bytes = source.tensor->bytes.subspan(static_cast<std::size_t>(row * source.in) * width,
                                            static_cast<std::size_t>(rows * source.in) * width);
  std::vector<float> values = widen(view);
  release_pages(view.bytes);
  for (float& value : values) {
    value = static_cast<float>(to_bfloat16(value));
    if (!std::isfinite(value)) {
      throw Error(
          fmt::format("{}: tensor '{}' holds a value that is not finite", where, printable(source.tensor->name)),
          "the file may be damaged: download it again");
    }
  }
  return values;
}

std::uint64_t write_rows(const Weight& weight, const Item& item, const std::string& where, CheckpointWriter& writer) {
  const std::vector<float> values = read_rows(weight.source, item.first_row, item.rows, where);
  const auto per_word = static_cast<std::size_t>(32 / weight.entry.bits);
  std::vector<std::uint32_t> codes(values.size() / per_word);
  std::vector<BFloat16> scales(values.size() / kMlxGroup);
  std::vector<BFloat16> biases(scales.size());
  quantize_affine(values, weight.entry.bits, codes, scales, biases);

  const auto first = static_cast<std::uint64_t>(item.first_row * weight.source.in);
  const std::uint64_t group_offset = first / kMlxGroup * sizeof(BFloat16);
  writer.write(weight.first_tensor, first / per_word * sizeof(std::uint32_t), std::as_bytes(std::span(codes)));
  writer.write(weight.first_tensor + 1, group_offset, std::as_bytes(std::span(scales)));
  writer.write(weight.first_tensor + 2, group_offset, std::as_bytes(std::span(biases)));
  return codes.size() * sizeof(std::uint32_t) + 2 * scales.size() * sizeof(BFloat16);
}

std::uint64_t write_plain(const Weight& weight, CheckpointWriter& writer) {
  const TensorView& tensor = *weight.source.tensor;
  if (weight.specs[0].dtype == tensor.dtype && !weight.plus_one) {
    writer.write(weight.first_tensor, 0, tensor.bytes);
    return tensor.bytes.size();
  }
  std::vector<BFloat16> rounded;
  for (const float value : widen(tensor)) rounded.push_back(to_bfloat16(weight.plus_one ? value + 1 : value));
  writer.write(weight.first_tensor, 0, std::as_bytes(std::span(rounded)));
  return rounded.size() * sizeof(BFloat16);
}

void write_small_files(const fs::path& source, const ModelConfig& config, CheckpointWriter& writer) {
  json document = read_json_file(source / "config.json");
  document.erase("vision_config");
  document.erase("_name_or_path");
  document["quantization"] = mlx_quantization(config);
  document["quantization_config"] = document["quantization"];
  writer.write_file("config.json", document.dump(2) + "\n");
  for (const char* name :
       {"generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
        "added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja"}) {
    std::error_code ignored;
    if (!fs::exists(source / name, ignored)) continue;
    const MappedFile file(source / name);
    writer.write_file(name, {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
  }
}

}  // namespace

ConvertResult convert_checkpoint(const fs::path& source, const fs::path& directory, const ConvertOptions& options,
                                 const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  const Checkpoint checkpoint = Checkpoint::open(source);
  if (checkpoint.config().quantized) {
    throw Error(fmt::format("{}: is quantised already", source.string()), "run it as it is");
  }
  const std::vector<Weight> weights = Planner(checkpoint).plan();
  ConvertResult result;
  std::vector<TensorSpec> specs;
  std::int64_t parameters = 0;
  for (const Weight& weight : weights) {
    specs.insert(specs.end(), weight.specs.begin(), weight.specs.end());
    parameters += weight.entry.values();
    if (weight.entry.bits != 0) ++result.matrices;
  }
  for (const TensorSpec& spec : specs) result.bytes += spec.bytes();
  result.left_out = static_cast<std::size_t>(std::ranges::count_if(
      checkpoint.tensors(), [](const TensorView& tensor) { return canonical_name(tensor.name).empty(); }));

  CheckpointWriter writer(directory);
  write_small_files(source, checkpoint.config(), writer);
  writer.begin_tensors(std::move(specs), options.shard_bytes, parameters);
  const std::vector<Item> items = items_of(weights);
  std::vector<std::uint64_t> written(items.size());
  std::uint64_t done = 0;
  parallel_items(
      items.size(), options.threads,
      [&](std::size_t i, std::size_t) {
        const Weight& weight = weights[items[i].weight];
        written[i] = weight.entry.bits == 0 ? write_plain(weight, writer)
                                            : write_rows(weight, items[i], source.string(), writer);
      },
      [&](std::size_t i) {
        done += written[i];
        if (progress) progress(done, result.bytes);
      });
  writer.finish();
  return result;
}

}  // namespace lily
