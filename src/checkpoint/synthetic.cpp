#include "checkpoint/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "checkpoint/checkpoint_writer.h"
#include "checkpoint/layout.h"
#include "checkpoint/synthetic_values.h"
#include "support/error.h"
#include "support/json.h"
#include "support/mapped_file.h"
#include "support/thread_pool.h"

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
  std::vector<Source> sources;
  for (const LayoutEntry& entry : layout) {
    const std::string name = mlx_name(entry.name);
    if (entry.bits == 0) {
      sources.push_back({{.name = name, .dtype = DType::kBF16, .shape = entry.shape}, &entry, fill_plain});
      continue;
    }
    std::vector<std::int64_t> words = entry.shape;
    words.back() = words.back() * entry.bits / 32;
    std::vector<std::int64_t> groups = entry.shape;
    groups.back() /= 64;
    sources.push_back({{.name = name + ".weight", .dtype = DType::kU32, .shape = words}, &entry, fill_codes});
    sources.push_back({{.name = name + ".scales", .dtype = DType::kBF16, .shape = groups}, &entry, fill_scales});
    sources.push_back({{.name = name + ".biases", .dtype = DType::kBF16, .shape = groups}, &entry, fill_biases});
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

json quantization_json(const ModelConfig& c) {
  json quantization = {{"group_size", 64}, {"bits", 4}, {"mode", "affine"}};
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i) {
    for (const char* router : {"gate", "shared_expert_gate"}) {
      quantization[fmt::format("language_model.model.layers.{}.mlp.{}", i, router)] = {{"group_size", 64}, {"bits", 8}};
    }
  }
  return quantization;
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
          {"quantization", quantization_json(c)},
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
  ThreadPool pool(std::max(1, options.threads));
  std::vector<std::vector<std::byte>> buffers(static_cast<std::size_t>(pool.size()), std::vector<std::byte>(kChunk));
  std::mutex mutex;
  std::exception_ptr failure;
  std::atomic<bool> stop{false};
  std::uint64_t done = 0;

  const auto write_chunk = [&](const Chunk& chunk, std::vector<std::byte>& buffer) {
    const Source& source = sources[chunk.tensor];
    const std::span<std::byte> bytes = std::span(buffer).first(static_cast<std::size_t>(chunk.size));
    source.fill(*source.entry, options.seed, chunk.offset, bytes);
    writer.write(chunk.tensor, chunk.offset, bytes);
  };
  // In rounds, so that progress comes from the calling thread.
  constexpr std::size_t kRound = 64;
  for (std::size_t first = 0; first < chunks.size() && !stop; first += kRound) {
    const std::size_t count = std::min(kRound, chunks.size() - first);
    pool.run(static_cast<std::int64_t>(count), [&](std::int64_t item, int thread) noexcept {
      if (stop) return;
      try {
        write_chunk(chunks[first + static_cast<std::size_t>(item)], buffers[static_cast<std::size_t>(thread)]);
      } catch (...) {
        const std::lock_guard lock(mutex);
        failure = std::current_exception();
        stop = true;
      }
    });
    for (std::size_t i = first; i < first + count; ++i) done += chunks[i].size;
    if (progress) progress(done, total);
  }
  if (failure) std::rethrow_exception(failure);
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
  for (const Source& source : sources) specs.push_back(source.spec);
  writer.begin_tensors(std::move(specs), options.shard_bytes, parameters);
  write_tensors(writer, sources, options, result.bytes, progress);
  writer.finish();
  return result;
}

}  // namespace lily
