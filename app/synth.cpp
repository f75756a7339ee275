// lily synth OUT: a random checkpoint in the MLX 4-bit layout, of any size.
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/synthetic.h"
#include "commands.h"
#include "interrupt.h"
#include "options.h"
#include "progress_line.h"
#include "support/thread_pool.h"

namespace lily {
namespace {

struct SizeOption {
  const char* name;
  std::int64_t ModelConfig::*field;
  const char* help;
};

constexpr SizeOption kSizes[] = {
    {"--layers", &ModelConfig::num_hidden_layers, "num_hidden_layers"},
    {"--attention-interval", &ModelConfig::full_attention_interval, "every so many layers one of full attention"},
    {"--hidden", &ModelConfig::hidden_size, "hidden_size"},
    {"--vocab", &ModelConfig::vocab_size, "vocab_size"},
    {"--heads", &ModelConfig::num_attention_heads, "num_attention_heads"},
    {"--kv-heads", &ModelConfig::num_key_value_heads, "num_key_value_heads"},
    {"--head-dim", &ModelConfig::head_dim, "head_dim; a quarter of it is rotated"},
    {"--key-heads", &ModelConfig::linear_num_key_heads, "linear_num_key_heads"},
    {"--value-heads", &ModelConfig::linear_num_value_heads, "linear_num_value_heads"},
    {"--key-head-dim", &ModelConfig::linear_key_head_dim, "linear_key_head_dim"},
    {"--value-head-dim", &ModelConfig::linear_value_head_dim, "linear_value_head_dim"},
    {"--experts", &ModelConfig::num_experts, "num_experts"},
    {"--experts-per-token", &ModelConfig::num_experts_per_tok, "num_experts_per_tok"},
    {"--intermediate", &ModelConfig::moe_intermediate_size, "moe_intermediate_size"},
    {"--shared-intermediate", &ModelConfig::shared_expert_intermediate_size, "shared_expert_intermediate_size"},
    {"--context", &ModelConfig::max_position_embeddings, "max_position_embeddings"},
};

constexpr std::int64_t kLargest = 1 << 24;  // the exact limits are read_config's

struct Arguments {
  std::string out;
  bool full = false;
  std::uint64_t seed = 0;
  std::uint64_t shard_megabytes = 5120;
  std::array<std::optional<std::int64_t>, std::size(kSizes)> sizes;
};

void run(const Arguments& arguments) {
  SyntheticOptions options;
  options.config = arguments.full ? full_size() : demo_size();
  for (std::size_t i = 0; i < arguments.sizes.size(); ++i) {
    if (arguments.sizes[i]) options.config.*kSizes[i].field = *arguments.sizes[i];
  }
  options.config.rotary_dim = options.config.head_dim / 4;
  options.seed = arguments.seed;
  options.shard_bytes = arguments.shard_megabytes << 20;
  options.tokenizer_from = resolve_model("demo");
  options.threads = usable_cores();

  const Interrupt interrupt;  // what was written so far goes
  ProgressLine line("writing");
  const SyntheticResult result = write_synthetic(arguments.out, options, [&](std::uint64_t done, std::uint64_t total) {
    interrupt.check();
    line.show_bytes(done, total);
  });
  line.clear();
  fmt::print("{}: {} bytes of tensors, {} layers, random weights\n", arguments.out, result.bytes,
             options.config.num_hidden_layers);
  if (result.tokenizer) {
    fmt::print("the tokenizer is the demo model's; ids above it are never text\n");
  } else {
    fmt::print("without a tokenizer: the vocabulary is smaller than the demo model's\n");
  }
}

}  // namespace

void add_synth(CLI::App& app) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("synth", "write a random checkpoint of any size, for tests and benchmarks");
  command->add_option("out", arguments->out, "directory to write; must not exist")->required();
  command->add_flag("--full", arguments->full,
                    "start from the sizes of Qwen3.6-35B-A3B (19.5 GB), not the demo model's");
  for (std::size_t i = 0; i < std::size(kSizes); ++i) {
    command->add_option(kSizes[i].name, arguments->sizes[i], kSizes[i].help)
        ->check(CLI::Range(std::int64_t{1}, kSizes[i].field == &ModelConfig::num_hidden_layers ? 1024 : kLargest))
        ->group("Sizes");
  }
  command->add_option("--seed", arguments->seed, "the same seed gives the same bytes")
      ->check(fits_64_bits())
      ->capture_default_str();
  command->add_option("--shard-size", arguments->shard_megabytes, "largest shard, in MiB")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 20))
      ->capture_default_str();
  command->callback([arguments] { run(*arguments); });
}

}  // namespace lily
