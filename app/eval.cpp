// lily eval: how close this build comes to MLX-LM in float32 on stored reference numbers, or the perplexity of a text.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "engine/loaded_model.h"
#include "eval/evaluation.h"
#include "options.h"
#include "progress_line.h"
#include "support/checked_file.h"
#include "support/error.h"

namespace lily {
namespace {

struct EvalOptions {
  LoadOptions load;
  std::string goldens;
  std::string text;
  std::int64_t positions = 0;
  std::int64_t context = 2048;
  bool json = false;
};

using Clock = std::chrono::steady_clock;

std::filesystem::path goldens_file(const EvalOptions& options) {
  if (!options.goldens.empty()) return options.goldens;
  if (options.load.model == "demo") {
    return resolve_model("demo").parent_path() / "demo-goldens" / "goldens.safetensors";
  }
  throw Error(
      "eval: there are no reference numbers for this model",
      "make them with tools/goldens/make_goldens.py and give --goldens, or give --text for the perplexity of a file");
}

std::string read_text(const std::string& path) {
  constexpr std::size_t kLargest = std::size_t{1} << 30;  // hours of work; and /dev/zero never ends
  if (std::filesystem::is_directory(path)) throw_error("{}: is a directory, expected a text file", path);
  const FileHandle file(std::fopen(path.c_str(), "rb"));
  if (!file) throw_error("{}: cannot be read: {}", path, std::strerror(errno));
  std::string text;
  std::array<char, 1 << 16> buffer;
  for (std::size_t got; (got = std::fread(buffer.data(), 1, buffer.size(), file.get())) > 0;) {
    text.append(buffer.data(), got);
    if (text.size() > kLargest) throw_error("{}: has more than {} bytes, expected at most that", path, kLargest);
  }
  if (std::ferror(file.get()) != 0) throw_error("{}: cannot be read: {}", path, std::strerror(errno));
  return text;
}

void check_finite(double perplexity) {
  if (std::isfinite(perplexity)) return;
  throw Error("the model gives logits that are no numbers, so there is no perplexity",
              "the checkpoint may be damaged: download or convert it again");
}

nlohmann::json json_of(const RunScore& score) {
  return {{"top1_agreement", score.top1_agreement()},
          {"perplexity", score.perplexity()},
          {"perplexity_ratio", score.perplexity_ratio()},
          {"max_logit_error", score.max_logit_error}};
}

void print_row(const char* name, const RunScore& score) {
  fmt::print("  {:<28}{:>14.4f}%{:>14.5f}{:>12.6f}{:>18.5f}\n", name, 100 * score.top1_agreement(), score.perplexity(),
             score.perplexity_ratio(), score.max_logit_error);
}

void print_scores(const EvalOptions& options, const LoadedModel& model, const Goldens& goldens,
                  const GoldenScores& scores, double seconds) {
  if (options.json) {
    nlohmann::json report = json_of(scores.lily);
    report["positions"] = scores.lily.positions;
    report["reference_perplexity"] = scores.reference_perplexity;
    report["mlx_native"] = json_of(scores.native);
    report["model"] = options.load.model;
    report["device"] = model.device();
    report["seconds"] = seconds;
    fmt::print("{}\n", report.dump(2));
    return;
  }
  fmt::print("{} on {}: {} positions, against MLX-LM with the same weights in float32\n\n", options.load.model,
             model.device(), scores.lily.positions);
  fmt::print("  {:<28}{:>15}{:>14}{:>12}{:>18}\n", "", "top-1 agreement", "perplexity", "ratio", "max logit error");
  fmt::print("  {:<28}{:>15}{:>14.5f}\n", "MLX-LM, float32 (reference)", "", scores.reference_perplexity);
  print_row("lily", scores.lily);
  print_row("MLX-LM as it comes", scores.native);
  fmt::print(
      "\nThe logit error is taken over the reference's {} most likely tokens and the one that follows. {:.1f} s, "
      "{:.0f} positions/s.\n",
      goldens.top_k, seconds, static_cast<double>(scores.lily.positions) / seconds);
}

void eval_goldens(const EvalOptions& options, LoadedModel& model) {
  const Goldens goldens = read_goldens(goldens_file(options), model.config());
  ProgressLine line("comparing");
  const auto start = Clock::now();
  const GoldenScores scores =
      score_goldens(model.model(), model.ops(), goldens, options.positions,
                    [&](std::int64_t done, std::int64_t total) { line.show_count(done, total, "positions"); });
  line.clear();
  check_finite(scores.lily.perplexity());
  print_scores(options, model, goldens, scores, std::chrono::duration<double>(Clock::now() - start).count());
}

void eval_text(const EvalOptions& options, LoadedModel& model) {
  std::vector<std::int32_t> tokens = model.tokenizer().encode_text(read_text(options.text));
  if (options.positions > 0 && static_cast<std::int64_t>(tokens.size()) > options.positions + 1) {
    tokens.resize(static_cast<std::size_t>(options.positions) + 1);
  }
  ProgressLine line("reading");
  const auto start = Clock::now();
  const TextScore score =
      score_text(model.model(), model.ops(), model.tokenizer(), tokens, options.context,
                 [&](std::int64_t done, std::int64_t total) { line.show_count(done, total, "tokens"); });
  line.clear();
  check_finite(score.perplexity());
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (options.json) {
    fmt::print("{}\n", nlohmann::json{{"positions", score.tokens},
                                      {"perplexity", score.perplexity()},
                                      {"bits_per_byte", score.bits_per_byte()},
                                      {"context", options.context},
                                      {"model", options.load.model},
                                      {"device", model.device()},
                                      {"seconds", seconds}}
                           .dump(2));
    return;
  }
  fmt::print("{} on {}: {} tokens of {} in windows of {}\n", options.load.model, model.device(), score.tokens,
             options.text, options.context);
  fmt::print("perplexity {:.4f}, {:.4f} bits per byte. {:.1f} s, {:.0f} tokens/s.\n", score.perplexity(),
             score.bits_per_byte(), seconds, static_cast<double>(score.tokens) / seconds);
}

void eval(const EvalOptions& options) {
  // Before the model is loaded, which may take a while.
  resolve_model(options.load.model);
  if (options.text.empty()) goldens_file(options);
  LoadedModel model(options.load);
  if (options.text.empty()) {
    eval_goldens(options, model);
  } else {
    eval_text(options, model);
  }
}

}  // namespace

void add_eval(CLI::App& app) {
  auto options = std::make_shared<EvalOptions>();
  CLI::App* command = app.add_subcommand("eval", "compare with MLX-LM's float32 numbers, or score a text");
  add_load_options(*command, options->load);
  auto* goldens =
      command->add_option("--goldens", options->goldens,
                          "reference numbers (made by tools/goldens/make_goldens.py; the demo model has its own)");
  command->add_option("--text", options->text, "perplexity of this text file instead")->excludes(goldens);
  command->add_option("--positions", options->positions, "only the first so many positions; 0: all")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40))
      ->capture_default_str();
  command->add_option("--context", options->context, "with --text: tokens read at a time, each time from nothing")
      ->check(CLI::Range(std::int64_t{2}, std::int64_t{1} << 20))
      ->capture_default_str();
  command->add_flag("--json", options->json, "the numbers as JSON");
  command->callback([options] { eval(*options); });
}

}  // namespace lily
