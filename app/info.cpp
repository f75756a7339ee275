// lily info: what a checkpoint is, its bytes by part, and how much memory it needs for each context length here.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/layout.h"
#include "checkpoint/quantization.h"
#include "commands.h"
#include "model/memory_forecast.h"
#include "support/machine_memory.h"

namespace lily {
namespace {

struct Summary {
  std::int64_t parameters = 0;
  std::int64_t active = 0;  // parameters that one token's computation reads; of embed_tokens that is one row
  std::array<std::uint64_t, kModelParts> bytes{};
  std::uint64_t text_bytes = 0;
  std::uint64_t skipped_bytes = 0;  // vision tower, multi-token prediction
  std::size_t files_tensors = 0;
  std::vector<std::string> missing;
};

Summary summarize(const Checkpoint& checkpoint) {
  const ModelConfig& c = checkpoint.config();
  Summary summary;
  summary.files_tensors = checkpoint.tensors().size();
  summary.text_bytes = checkpoint.text_bytes();
  for (const TensorView& tensor : checkpoint.tensors()) {
    const std::string_view name = canonical_name(tensor.name);
    std::uint64_t& bytes =
        name.empty() ? summary.skipped_bytes : summary.bytes[static_cast<std::size_t>(part_of(name))];
    bytes += tensor.bytes.size();
  }
  for (const LayoutEntry& entry : text_layout(c)) {
    const bool routed = entry.name.find(".switch_mlp.") != std::string::npos;
    summary.parameters += entry.values();
    if (entry.name == "embed_tokens") continue;
    summary.active += routed ? entry.values() / c.num_experts * c.num_experts_per_tok : entry.values();
    if (!c.quantized) continue;  // other names; the loader explains what to do
    const std::string tensor = entry.bits == 0 ? entry.name : entry.name + ".weight";
    if (!checkpoint.has(tensor)) summary.missing.push_back(tensor);
  }
  return summary;
}

std::string format_name(const ModelConfig& c) {
  return c.quantized ? fmt::format("MLX {}-bit, groups of {}", c.bits, c.group_size) : "not quantised";
}

double bits_per_weight(const Summary& summary) {
  return 8.0 * static_cast<double>(summary.text_bytes) / static_cast<double>(summary.parameters);
}

std::vector<std::int64_t> context_lengths(const ModelConfig& c) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t length = 4096; length < c.max_position_embeddings && length < (1 << 18); length *= 2) {
    lengths.push_back(length);
  }
  lengths.push_back(std::min<std::int64_t>(c.max_position_embeddings, 1 << 18));
  return lengths;
}

std::string bytes_text(std::uint64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (value < 1e6) return fmt::format("{:.1f} kB", value / 1e3);
  return value < 1e9 ? fmt::format("{:.1f} MB", value / 1e6) : fmt::format("{:.2f} GB", value / 1e9);
}

std::string count_text(std::int64_t count) {
  const auto value = static_cast<double>(count);
  return value < 1e9 ? fmt::format("{:.2f} million", value / 1e6) : fmt::format("{:.2f} billion", value / 1e9);
}

void print_sizes(const Checkpoint& checkpoint, const Summary& summary) {
  const ModelConfig& c = checkpoint.config();
  fmt::print("{}\n", checkpoint.directory().string());
  fmt::print("  format       {}, {} tensors, {:.3f} bits per weight\n", format_name(c), summary.files_tensors,
             bits_per_weight(summary));
  fmt::print("  parameters   {}, {} active per token\n", count_text(summary.parameters), count_text(summary.active));
  fmt::print("  layers       {}: {} gated delta, {} full attention; hidden {}, vocabulary {}\n", c.num_hidden_layers,
             c.num_linear_layers(), c.num_attention_layers(), c.hidden_size, c.vocab_size);
  fmt::print("  gated delta  {} key heads of {}, {} value heads of {}, convolution over {}\n", c.linear_num_key_heads,
             c.linear_key_head_dim, c.linear_num_value_heads, c.linear_value_head_dim, c.linear_conv_kernel_dim);
  fmt::print("  attention    {} heads, {} KV heads of {}, {} dimensions rotated, context up to {}\n",
             c.num_attention_heads, c.num_key_value_heads, c.head_dim, c.rotary_dim, c.max_position_embeddings);
  fmt::print("  experts      {}, {} per token, intermediate {}; one shared, intermediate {}\n", c.num_experts,
             c.num_experts_per_tok, c.moe_intermediate_size, c.shared_expert_intermediate_size);
}

void print_bytes(const Summary& summary) {
  fmt::print("\nbytes\n");
  for (int i = 0; i < kModelParts; ++i) {
    const std::uint64_t bytes = summary.bytes[static_cast<std::size_t>(i)];
    fmt::print("  {:12} {:>15} {:5.1f}%\n", part_name(static_cast<ModelPart>(i)), bytes,
               100.0 * static_cast<double>(bytes) / static_cast<double>(summary.text_bytes));
  }
  fmt::print("  {:12} {:>15}\n", "text model", summary.text_bytes);
  if (summary.skipped_bytes > 0) {
    fmt::print("  {:12} {:>15}  (vision, multi-token prediction: not read)\n", "skipped", summary.skipped_bytes);
  }
}

void print_memory(const ModelConfig& c, std::uint64_t weights, const std::optional<MachineMemory>& machine) {
  const auto state = forecast_memory(c, weights, 1, kCpuMemory).recurrent_state;
  fmt::print("\nmemory for one conversation: weights {}, recurrent state {}, KV cache and activations by context\n",
             bytes_text(weights), bytes_text(state));
  fmt::print("  {:>8}  {:>12}  {:>12}  {:>12}  {:>12}\n", "context", "KV on GPU", "all on GPU", "KV on CPU",
             "all on CPU");
  for (const std::int64_t context : context_lengths(c)) {
    const MemoryForecast gpu = forecast_memory(c, weights, context, kGpuMemory);
    const MemoryForecast cpu = forecast_memory(c, weights, context, kCpuMemory);
    const bool fits = !machine || cpu.total() <= machine->available;
    fmt::print("  {:>8}  {:>12}  {:>12}  {:>12}  {:>12}{}\n", context, bytes_text(gpu.kv_cache),
               bytes_text(gpu.total()), bytes_text(cpu.kv_cache), bytes_text(cpu.total()),
               fits ? "" : "  more than available");
  }
  if (machine) {
    fmt::print("this machine has {}, available now {}\n", bytes_text(machine->total), bytes_text(machine->available));
  }
}

nlohmann::json forecast_json(const ModelConfig& c, std::uint64_t weights, std::int64_t context,
                             const MemoryTraits& traits) {
  const MemoryForecast forecast = forecast_memory(c, weights, context, traits);
  return {{"weights", forecast.weights},
          {"kv_cache", forecast.kv_cache},
          {"recurrent_state", forecast.recurrent_state},
          {"activations", forecast.activations},
          {"total", forecast.total()}};
}

void print_json(const Checkpoint& checkpoint, const Summary& summary, const std::optional<MachineMemory>& machine) {
  const ModelConfig& c = checkpoint.config();
  nlohmann::json bytes = {{"text_model", summary.text_bytes}, {"skipped", summary.skipped_bytes}};
  for (int i = 0; i < kModelParts; ++i) {
    std::string name(part_name(static_cast<ModelPart>(i)));
    for (char& letter : name) letter = letter == ' ' ? '_' : letter;
    bytes[name] = summary.bytes[static_cast<std::size_t>(i)];
  }
  nlohmann::json forecasts = nlohmann::json::array();
  for (const std::int64_t context : context_lengths(c)) {
    forecasts.push_back({{"context", context},
                         {"cpu", forecast_json(c, summary.text_bytes, context, kCpuMemory)},
                         {"gpu", forecast_json(c, summary.text_bytes, context, kGpuMemory)}});
  }
  nlohmann::json document = {{"directory", checkpoint.directory().string()},
                             {"format", format_name(c)},
                             {"quantized", c.quantized},
                             {"bits_per_weight", bits_per_weight(summary)},
                             {"tensors", summary.files_tensors},
                             {"missing", summary.missing},
                             {"parameters", summary.parameters},
                             {"active_parameters", summary.active},
                             {"hidden_size", c.hidden_size},
                             {"num_hidden_layers", c.num_hidden_layers},
                             {"full_attention_layers", c.num_attention_layers()},
                             {"vocab_size", c.vocab_size},
                             {"num_attention_heads", c.num_attention_heads},
                             {"num_key_value_heads", c.num_key_value_heads},
                             {"head_dim", c.head_dim},
                             {"linear_num_key_heads", c.linear_num_key_heads},
                             {"linear_num_value_heads", c.linear_num_value_heads},
                             {"linear_key_head_dim", c.linear_key_head_dim},
                             {"linear_value_head_dim", c.linear_value_head_dim},
                             {"num_experts", c.num_experts},
                             {"num_experts_per_tok", c.num_experts_per_tok},
                             {"moe_intermediate_size", c.moe_intermediate_size},
                             {"shared_expert_intermediate_size", c.shared_expert_intermediate_size},
                             {"max_position_embeddings", c.max_position_embeddings},
                             {"eos_token_ids", c.eos_token_ids},
                             {"bytes", bytes},
                             {"memory_forecast", forecasts}};
  if (machine) document["machine_memory"] = {{"total", machine->total}, {"available", machine->available}};
  fmt::print("{}\n", document.dump(2));
}

void run(const std::string& model, bool as_json) {
  const Checkpoint checkpoint = Checkpoint::open(resolve_model(model));
  const Summary summary = summarize(checkpoint);
  const std::optional<MachineMemory> machine = machine_memory();
  if (as_json) {
    print_json(checkpoint, summary, machine);
    return;
  }
  print_sizes(checkpoint, summary);
  print_bytes(summary);
  if (!summary.missing.empty()) {
    fmt::print("\nincomplete: {} tensors are missing, the first is {}\n", summary.missing.size(),
               summary.missing.front());
  } else if (checkpoint.config().quantized) {
    print_memory(checkpoint.config(), summary.text_bytes, machine);
  } else {
    fmt::print("\nlily runs MLX 4-bit checkpoints; make one of this with: lily convert {} OUT\n",
               checkpoint.directory().string());
  }
}

}  // namespace

void add_info(CLI::App& app) {
  struct Arguments {
    std::string model = "demo";
    bool json = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("info", "what a checkpoint is, its bytes by part, and the memory it needs");
  command->add_option("-m,--model", arguments->model, "directory, Hugging Face id in the local cache, or 'demo'")
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "print JSON");
  command->callback([arguments] { run(arguments->model, arguments->json); });
}

}  // namespace lily
