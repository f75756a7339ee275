// lily bench: how fast this machine reads prompts and writes replies, against its own limit and another engine.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <stdlib.h>  // getloadavg

#include <array>
#include <chrono>
#include <ctime>

#include "bench_ablate.h"
#include "bench_report.h"
#include "benchmark/costs.h"
#include "benchmark/machine.h"
#include "benchmark/peer.h"
#include "benchmark/speed.h"
#include "benchmark/trace.h"
#include "checkpoint/checkpoint.h"
#include "commands.h"
#include "engine/loaded_model.h"
#include "ops/profile.h"
#include "options.h"
#include "progress_line.h"
#include "support/error.h"
#include "support/thread_pool.h"

namespace lily {
namespace {

struct BenchOptions {
  LoadOptions load;
  std::vector<std::int64_t> lengths = {512, 4096};
  bool lengths_given = false;
  std::int64_t tokens = 64;
  std::int64_t chunk = 0;
  int rounds = 3;
  std::int64_t against_limit = 3600;  // seconds
  bool sweep = false, sampled = false, trace = false, profile = false, machine = false, ablate = false, json = false;
  std::string against, csv, plot;
};

const std::vector<std::int64_t> kSweep = {256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072};

std::string load_average() {
  std::array<double, 1> load{};
  return getloadavg(load.data(), 1) == 1 ? fmt::format("{:.2f}", load[0]) : "";
}

void measure_machine(const LoadedModel& model, BenchReport& report) {
  if (model.gpu() != nullptr) {
    report.bandwidth = measured_copy_bandwidth(*model.gpu());
    report.matrix_rate = measured_matrix_rate(*model.gpu());
  } else {
    report.bandwidth = measured_read_bandwidth(report.threads);
    report.matrix_rate = measured_dot_rate(report.threads);
  }
}

BenchReport report_of(const BenchOptions& options, const LoadedModel& model) {
  const bool cpu = model.gpu() == nullptr;
  BenchReport report{.model = options.load.model,
                     .device = model.device(),
                     .device_name = cpu ? "" : model.gpu()->info().name,
                     .started = fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr))),
                     .load = load_average(),
                     .threads = !cpu                       ? 0
                                : options.load.threads > 0 ? options.load.threads
                                                           : usable_cores(),
                     .tokens = options.tokens,
                     .rounds = options.rounds,
                     .sampled = options.sampled,
                     .bandwidth = {},
                     .matrix_rate = {},
                     .active_weight_bytes = active_weight_bytes(model.checkpoint()),
                     .peer_command = options.against,
                     .results = {}};
  if (options.machine) measure_machine(model, report);
  return report;
}

/// What the rounds of one length were.
struct Rounds {
  std::vector<double> prefill, decode, first_token, peer_prefill, peer_decode;
  Trace trace;

  void add(const Speed& speed, std::int64_t length) {
    prefill.push_back(static_cast<double>(length) / speed.prefill_seconds);
    decode.push_back(speed.decode_rate());
    first_token.push_back(speed.first_token_seconds);
    trace.tokens = speed.tokens - 1;
    trace.chunks = speed.chunks;
    trace.decode = speed.decode;
    trace.prefill = speed.prefill;
  }
  void add(const PeerSpeed& speed) {
    if (speed.prefill) peer_prefill.push_back(*speed.prefill);
    if (speed.decode) peer_decode.push_back(*speed.decode);
  }
};

std::optional<Spread> spread_if_any(const std::vector<double>& values) {
  if (values.empty()) return {};
  return spread_of(values);
}

BenchResult bench_length(const BenchOptions& options, LoadedModel& model, std::int64_t length,
                         const BenchReport& report, Profile& profile) {
  SamplingParams sampling = SamplingParams::defaults(true);
  sampling.seed = 1;
  if (!options.sampled) sampling.temperature = 0;
  SpeedTest test(model, {.length = length, .tokens = options.tokens, .sampling = sampling, .chunk = options.chunk});
  ProgressLine line(fmt::format("prompt of {}", length));
  Rounds rounds;
  test.round();  // warms up
  for (int round = 0; round < options.rounds; ++round) {
    line.show_count(round, options.rounds, "rounds");
    rounds.add(test.round(), length);
    if (options.against.empty()) continue;
    rounds.add(run_peer(options.against, length, options.tokens, std::chrono::seconds(options.against_limit)));
  }
  line.clear();
  BenchResult result{.length = length,
                     .prefill = spread_of(rounds.prefill),
                     .decode = spread_of(rounds.decode),
                     .first_token = spread_of(rounds.first_token),
                     .bandwidth_share = {},
                     .matrix_share = {},
                     .peer_prefill = spread_if_any(rounds.peer_prefill),
                     .peer_decode = spread_if_any(rounds.peer_decode),
                     .trace = rounds.trace,
                     .profiled = {}};
  if (options.trace && model.gpu() != nullptr) {
    result.trace.expected =
        count_launches(model.config(), path_of(model.gpu()->info()), length, options.chunk, result.trace.tokens);
  }
  if (options.profile) {
    profile.clear();
    const Speed speed = test.round();
    result.profiled = {.seconds = speed.first_token_seconds + speed.decode_seconds, .profile = profile};
  }
  if (report.bandwidth) {
    const std::int64_t kv_bytes = model.gpu() != nullptr ? kGpuMemory.kv_value_bytes : kCpuMemory.kv_value_bytes;
    const std::uint64_t bytes = decode_bytes(model.checkpoint(), length + options.tokens / 2, kv_bytes);
    result.bandwidth_share = static_cast<double>(bytes) * result.decode.median / *report.bandwidth;
  }
  if (report.matrix_rate) {
    const double operations = prefill_operations(model.config(), length);
    result.matrix_share = operations * result.prefill.median / *report.matrix_rate;
  }
  return result;
}

/// Without a GPU nothing runs, so there are launches to count but no speed.
void bench_full_shape_trace(const BenchOptions& options) {
  for (const auto& [given, name] :
       {std::pair(!options.plot.empty(), "--plot"), std::pair(!options.against.empty(), "--against"),
        std::pair(options.profile, "--profile"), std::pair(options.machine, "--machine")}) {
    if (!given) continue;
    throw Error(fmt::format("bench: {} measures, and --trace without a GPU only counts", name),
                fmt::format("leave out --trace or {}, or give --device emulated", name));
  }
  const FullShapeTrace trace = trace_full_shape();
  if (!options.csv.empty()) write_file(options.csv, csv_of(trace));
  if (options.json) {
    fmt::print("{}\n", json_of(trace));
  } else {
    print_trace(trace);
  }
}

void bench(BenchOptions options) {
  if (options.sweep) options.lengths = kSweep;
  for (const std::int64_t length : options.lengths) {
    options.load.context = std::max(options.load.context, length + options.tokens + 1);
  }
  if (options.ablate) {
    ablate({.load = options.load,
            .lengths = options.lengths,
            .own_lengths = !options.lengths_given,
            .tokens = options.tokens,
            .rounds = options.rounds});
    return;
  }
  auto device = make_device(parse_device_kind(options.load.device));
  if (options.trace && device == nullptr) return bench_full_shape_trace(options);
  const std::int64_t positions = Checkpoint::open(resolve_model(options.load.model)).config().max_position_embeddings;
  if (options.sweep) std::erase_if(options.lengths, [&](std::int64_t n) { return n + options.tokens > positions; });
  for (const std::int64_t length : options.lengths) {
    if (length + options.tokens <= positions) continue;
    throw Error(fmt::format("bench: a prompt of {} and a reply of {} tokens are more than the model's {} positions",
                            length, options.tokens, positions),
                "give shorter ones with -p and -n");
  }
  Profile profile;
  if (options.profile) options.load.profile = &profile;
  LoadedModel model(options.load, std::move(device));
  if (options.profile && model.gpu() != nullptr) {
    throw Error("bench: --profile times the CPU's ops", "give --device cpu, or use the vendor's profiler on a GPU");
  }
  BenchReport report = report_of(options, model);
  if (!options.csv.empty()) write_file(options.csv, csv_of(report));  // before hours of work, not after
  if (!options.plot.empty()) write_charts(report, options.plot);
  if (!options.json) print_header(report);
  for (const std::int64_t length : options.lengths) {
    report.results.push_back(bench_length(options, model, length, report, profile));
    if (!options.json) print_result(report, report.results.back());
    if (!options.csv.empty()) write_file(options.csv, csv_of(report));
  }
  if (options.json) fmt::print("{}\n", json_of(report));
  if (options.trace && !options.json) print_trace(report);
  if (options.profile && !options.json) print_profiles(report);
  if (!options.plot.empty()) write_charts(report, options.plot);
}

}  // namespace

void add_bench(CLI::App& app) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* command = app.add_subcommand("bench", "measure prefill and decode, against the machine or another engine");
  add_load_options(*command, options->load);
  const CLI::Range lengths(std::int64_t{1}, std::int64_t{1} << 20);
  auto* given = command->add_option("-p,--lengths", options->lengths, "prompt lengths in tokens, e.g. 512,4096")
                    ->delimiter(',')
                    ->check(lengths)
                    ->capture_default_str();
  command->add_flag("--sweep", options->sweep, "ten lengths, 256 to 131072")->excludes(given);
  command->add_option("-n,--tokens", options->tokens, "tokens of the reply")
      ->check(CLI::Range(std::int64_t{2}, std::int64_t{1} << 20))
      ->capture_default_str();
  command->add_option("-r,--rounds", options->rounds, "after one round that warms up; the table shows their median")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--chunk", options->chunk, "prompt tokens in one forward pass; 0: the device's choice")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 20));
  command->add_flag("--sampled", options->sampled, "the model's default sampling; without: greedy");
  command->add_flag("--machine", options->machine,
                    "measure the memory's bandwidth and the matrix rate too: decode's and prefill's share");
  command->add_flag(
      "--trace", options->trace,
      "launches, sequential stages and weight bytes of a GPU; without one, counted at Qwen3.6-35B-A3B's sizes");
  command->add_flag("--profile", options->profile, "on the CPU: time by op");
  auto* ablate = command->add_flag("--ablate", options->ablate,
                                   "what each optimisation is worth: engines that differ in one switch, in turns");
  auto* against =
      command
          ->add_option("--against", options->against,
                       "another engine's benchmark, run after each round; {length} and {tokens} are replaced, e.g. "
                       "\"llama-bench -m model.gguf -p {length} -n 0 -o json\"")
          ->check(CLI::Validator([](const std::string& text) { return text.empty() ? "is empty" : ""; }, "COMMAND"));
  command
      ->add_option("--against-limit", options->against_limit,
                   "seconds that one run of the other engine may take; 0: any number")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30))
      ->capture_default_str()
      ->needs(against);
  auto* csv = command->add_option("--csv", options->csv, "write the figures to this file");
  auto* plot = command->add_option("--plot", options->plot, "write prefill.svg and decode.svg to this directory");
  auto* json = command->add_flag("--json", options->json, "the figures as JSON instead of a table");
  for (auto* other : {against, csv, plot, json}) ablate->excludes(other);  // it has a table of its own
  command->callback([options, command, given] {
    options->lengths_given = given->count() > 0 || command->count("--sweep") > 0;
    bench(*options);
  });
}

}  // namespace lily
