#include "checkpoint/synthetic.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/layout.h"
#include "checkpoint/mlx_format.h"
#include "checkpoint/parallel_items.h"
#include "checkpoint/synthetic_values.h"
#include "support/mapped_file.h"

namespace lily {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint64_t kChunk = std::uint64_t{4} << 20;

using Fill = void (*)(const LayoutEntry&, std::uint64_t, std::uint64_t, std::span<std::byte>);

/// One tensor of a file and how its bytes come about.
struct Source {
  TensorSpec spec;
  const LayoutEntry* entry;
  Fill fill;
};

std::vector<Source> sources_of(const std::vector<LayoutEntry>& layout) {
  constexpr std::array<Fill, 3> kMatrix = {fill_codes, fill_scales, fill_biases};
  std::vector<Source> sources;
  for (const LayoutEntry& entry : layout) {
    std::size_t part = 0;
    for (TensorSpec& spec : mlx_tensors(entry)) {
      sources.push_back({std::move(spec), &entry, entry.bits == 0 ? fill_plain : kMatrix[part++]});
    }
  }
  return sources;
}

/// A stretch of one tensor: what a thread fills and writes at a time.
struct Chunk {
  std::size_t tensor;
  std::uint64_t offset;
  std::uint64_t size;
};

std::vector<Chunk> chunks_of(const std::vector<Source>& sources) {
  std::vector<Chunk> chunks;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const std::uint64_t size = sources[i].spec.bytes();
    for (std::uint64_t offset = 0; offset < size; offset += kChunk) {
      chunks.push_back({.tensor = i, .offset = offset, .size = std::min(kChunk, size - offset)});
    }
  }
  return chunks;
}

json config_json(const ModelConfig& c) {
  json types = json::array();
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i) {
    types.push_back(c.full_attention(i) ? "full_attention" : "linear_attention");
  }
  const json rope = {{"rope_type", "default"},
                     {"rope_theta", c.rope_theta},
                     {"partial_rotary_factor", static_cast<double>(c.rotary_dim) / static_cast<double>(c.head_dim)}};
  const json text = {{"model_type", "qwen3_5_moe_text"},
                     {"vocab_size", c.vocab_size},
                     {"hidden_size", c.hidden_size},
                     {"num_hidden_layers", c.num_hidden_layers},
                     {"layer_types", std::move(types)},
                     {"full_attention_interval", c.full_attention_interval},
                     {"num_attention_heads", c.num_attention_heads},
                     {"num_key_value_heads", c.num_key_value_heads},
                     {"head_dim", c.head_dim},
                     {"attention_bias", false},
                     {"attn_output_gate", true},
                     {"hidden_act", "silu"},
                     {"linear_num_key_heads", c.linear_num_key_heads},
                     {"linear_num_value_heads", c.linear_num_value_heads},
                     {"linear_key_head_dim", c.linear_key_head_dim},
                     {"linear_value_head_dim", c.linear_value_head_dim},
                     {"linear_conv_kernel_dim", c.linear_conv_kernel_dim},
                     {"num_experts", c.num_experts},
                     {"num_experts_per_tok", c.num_experts_per_tok},
                     {"moe_intermediate_size", c.moe_intermediate_size},
                     {"shared_expert_intermediate_size", c.shared_expert_intermediate_size},
                     {"norm_topk_prob", true},
                     {"rms_norm_eps", static_cast<double>(c.rms_norm_eps)},
                     {"max_position_embeddings", c.max_position_embeddings},
                     {"rope_parameters", rope},
                     {"tie_word_embeddings", false},
                     {"dtype", "bfloat16"}};
  return {{"architectures", {"Qwen3_5MoeForConditionalGeneration"}},
          {"model_type", "qwen3_5_moe"},
          {"quantization", mlx_quantization(c)},
          {"text_config", text},
          {"tie_word_embeddings", false}};
}

/// False when the vocabulary does not reach the tokenizer's ids.
bool copy_tokenizer(CheckpointWriter& writer, const fs::path& from, std::int64_t vocab_size) {
  if (from.empty() || read_config(from).vocab_size > vocab_size) return false;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "generation_config.json"}) {
    const MappedFile file(from / name);
    writer.write_file(name, {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
  }
  return true;
}

void write_tensors(CheckpointWriter& writer, const std::vector<Source>& sources, const SyntheticOptions& options,
                   std::uint64_t total, const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  const std::vector<Chunk> chunks = chunks_of(sources);
  const int threads = std::max(1, options.threads);
  std::vector<std::vector<std::byte>> buffers(static_cast<std::size_t>(threads), std::vector<std::byte>(kChunk));
  std::uint64_t done = 0;
  parallel_items(
      chunks.size(), threads,
      [&](std::size_t i, std::size_t thread) {
        const Chunk& chunk = chunks[i];
        const Source& source = sources[chunk.tensor];
        const std::span<std::byte> bytes = std::span(buffers[thread]).first(static_cast<std::size_t>(chunk.size));
        source.fill(*source.entry, options.seed, chunk.offset, bytes);
        writer.write(chunk.tensor, chunk.offset, bytes);
      },
      [&](std::size_t i) {
        done += chunks[i].size;
        if (progress) progress(done, total);
      });
}

}  // namespace

ModelConfig full_size() {
  ModelConfig c;
  c.hidden_size = 2048;
  c.num_hidden_layers = 40;
  c.vocab_size = 248320;
  c.max_position_embeddings = 262144;
  c.num_attention_heads = 16;
  c.num_key_value_heads = 2;
  c.head_dim = 256;
  c.rotary_dim = 64;
  c.linear_num_key_heads = 16;
  c.linear_num_value_heads = 32;
  c.linear_key_head_dim = 128;
  c.linear_value_head_dim = 128;
  c.num_experts = 256;
  c.num_experts_per_tok = 8;
  c.moe_intermediate_size = 512;
  c.shared_expert_intermediate_size = 512;
  return c;
}

ModelConfig demo_size() {
  ModelConfig c = full_size();
  c.hidden_size = 256;
  c.num_hidden_layers = 8;
  c.vocab_size = 8192;
  c.max_position_embeddings = 32768;
  c.num_attention_heads = 8;
  c.num_key_value_heads = 1;
  c.linear_num_key_heads = 2;
  c.linear_num_value_heads = 4;
  c.num_experts = 32;
  c.moe_intermediate_size = 64;
  c.shared_expert_intermediate_size = 64;
  return c;
}

SyntheticResult write_synthetic(const fs::path& directory, const SyntheticOptions& options,
                                const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
  CheckpointWriter writer(directory);
  writer.write_file("config.json", config_json(options.config).dump(2) + "\n");
  read_config(writer.partial());  // the same checks that a reader will make

  SyntheticResult result;
  result.tokenizer = copy_tokenizer(writer, options.tokenizer_from, options.config.vocab_size);
  const std::vector<LayoutEntry> layout = text_layout(options.config);
  std::int64_t parameters = 0;
  for (const LayoutEntry& entry : layout) {
    parameters += entry.values();
    result.bytes += static_cast<std::uint64_t>(entry.bytes());
  }
  const std::vector<Source> sources = sources_of(layout);
  std::vector<TensorSpec> specs;
  specs.reserve(sources.size());
  for (const Source& source : sources) specs.push_back(source.spec);
  writer.begin_tensors(std::move(specs), options.shard_bytes, parameters);
  write_tensors(writer, sources, options, result.bytes, progress);
  writer.finish();
  return result;
}

}  // namespace lily
