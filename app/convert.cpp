// lily convert SOURCE OUT: a bf16 checkpoint of Hugging Face -> MLX 4-bit, what lily runs.
#include "checkpoint/convert.h"

#include <fmt/format.h>

#include <memory>
#include <string>

#include "checkpoint/checkpoint.h"
#include "commands.h"
#include "interrupt.h"
#include "progress_line.h"
#include "support/thread_pool.h"

namespace lily {
namespace {

void run(const std::string& source, const std::string& out) {
  ConvertOptions options;
  options.threads = usable_cores();
  const Interrupt interrupt;  // what was written so far goes
  ProgressLine line("quantising");
  const ConvertResult result =
      convert_checkpoint(resolve_model(source), out, options, [&](std::uint64_t done, std::uint64_t total) {
        interrupt.check();
        line.show_bytes(done, total);
      });
  line.clear();
  fmt::print("{}: {} bytes of tensors, {} matrices quantised", out, result.bytes, result.matrices);
  if (result.left_out > 0) fmt::print("; {} tensors of vision and multi-token prediction left out", result.left_out);
  fmt::print("\n");
}

}  // namespace

void add_convert(CLI::App& app) {
  struct Arguments {
    std::string source;
    std::string out;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("convert", "quantise a bf16 checkpoint to MLX 4-bit");
  command->add_option("source", arguments->source, "directory, or Hugging Face id in the local cache")->required();
  command->add_option("out", arguments->out, "directory to write; must not exist")->required();
  command->callback([arguments] { run(arguments->source, arguments->out); });
}

}  // namespace lily
