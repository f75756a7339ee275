// What each optimisation brings at the full shape, with made-up weights: the engine against itself with one switch off
// (GpuOptions, Device::set_overlap), in turns.
//
//   ablation_bench [cuda|metal|emulated]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "benchmark.h"
#include "ops/gpu/gpu_ops.h"
#include "ops/gpu/synthetic.h"

namespace lily {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 5;
constexpr int kTokens = 32;

struct Case {
  const char* without;
  std::int64_t prompt = 0;   // tokens to read; 0: decode
  std::int64_t context = 0;  // of decode
  GpuOptions options;
  bool overlap = true;
  std::int64_t chunk = 4096;
};

std::vector<Case> cases() {
  return {
      {.without = "overlapping launches", .context = 4096, .options = {}, .overlap = false},
      {.without = "recorded steps", .context = 4096, .options = {.recorded_steps = false}},
      {.without = "token hand-off on the device", .context = 4096, .options = {.tokens_on_device = false}},
      {.without = "tensor cores", .context = 4096, .options = {.tensor_cores = GpuOptions::TensorCores::kNever}},
      {.without = "splits of the cache", .context = 4096, .options = {.attention_groups = 2}},
      {.without = "splits of the cache", .context = 32768, .options = {.attention_groups = 2}},
      {.without = "overlapping launches", .prompt = 512, .options = {}, .overlap = false},
      {.without = "routing on the device", .prompt = 512, .options = {.routing_on_device = false}},
      {.without = "routing on the device", .prompt = 2048, .options = {.routing_on_device = false}},
      {.without = "tiles by load (32 rows)", .prompt = 4096, .options = {.tiles_by_load = false}},
      {.without = "the delta rule by chunks", .prompt = 4096, .options = {.chunked_delta = false}},
      {.without = "chunks of 4096 (512)", .prompt = 4096, .options = {}, .chunk = 512},
      {.without = "tensor cores", .prompt = 512, .options = {.tensor_cores = GpuOptions::TensorCores::kNever}},
  };
}

class Bench {
 public:
  Bench(Device& device, const ModelConfig& config)
      : device_(device), all_(make_gpu_ops(device, config)), model_(make_synthetic_model(device, *all_, config)) {
    logits_.resize(static_cast<std::size_t>(config.vocab_size));
    for (std::int64_t i = 0; i < 4096; ++i) tokens_.push_back(static_cast<std::int32_t>(i * 7919 % 248000));
  }

  void run(const Case& c) {
    const auto ops = make_gpu_ops(device_, model_.config, c.options);
    const auto state = all_->new_state(std::max(c.context + kTokens + 8, c.prompt));
    state->reset();
    if (c.context > 0) fill_cache(device_, model_.config, *state, c.context + kTokens + 8);
    std::vector<double> with, without;
    for (int round = 0; round <= kRounds; ++round) {
      const double first = seconds(*all_, *state, c, 4096);
      device_.set_overlap(c.overlap);
      const double second = seconds(*ops, *state, c, c.chunk);
      device_.set_overlap(true);
      if (round == 0) continue;
      with.push_back(first);
      without.push_back(second);
    }
    const double a = median(with), b = median(without);
    const auto tokens = static_cast<double>(c.prompt > 0 ? c.prompt : kTokens);
    fmt::print("{:8} {:6}  without {:30} {:9.1f} -> {:9.1f} tok/s  {:+7.1f}%\n", c.prompt > 0 ? "prefill" : "decode",
               c.prompt > 0 ? c.prompt : c.context, c.without, tokens / a, tokens / b, 100 * (b / a - 1));
    std::fflush(stdout);
  }

 private:
  static double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  }

  double seconds(Ops& ops, SequenceState& state, const Case& c, std::int64_t chunk) {
    return c.prompt > 0 ? prefill(ops, state, c.prompt, chunk) : decode(ops, state, c.context);
  }

  Tensor forward_last(Ops& ops, SequenceState& state, std::span<const std::int32_t> tokens, std::int64_t position) {
    const auto rows = static_cast<std::int64_t>(tokens.size()), last = rows - 1;
    const Segment segment{&state, 0, rows, position};
    return forward(ops, model_, tokens, std::span(&segment, 1), std::span(&last, 1));
  }

  double prefill(Ops& ops, SequenceState& state, std::int64_t length, std::int64_t chunk) {
    state.reset();
    device_.wait(device_.submit());
    const auto start = Clock::now();
    for (std::int64_t done = 0; done < length; done += chunk) {
      const auto rows = static_cast<std::size_t>(std::min(chunk, length - done));
      ops.read(forward_last(ops, state, std::span(tokens_).first(rows), done), logits_);
    }
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  double decode(Ops& ops, SequenceState& state, std::int64_t context) {
    std::int32_t token = 1000;
    SamplingParams greedy;
    greedy.temperature = 0;
    const auto loop = ops.decode_loop(state, [&](std::span<const std::int32_t> tokens, Batch batch) {
      const std::int64_t row = 0;
      return forward(ops, model_, tokens, batch, std::span(&row, 1));
    });
    if (loop == nullptr) {
      const auto start = Clock::now();
      for (int i = 0; i < kTokens; ++i) {
        ops.read(forward_last(ops, state, std::span(&token, 1), context + i), logits_);
        token = static_cast<std::int32_t>(std::max_element(logits_.begin(), logits_.end()) - logits_.begin());
      }
      return std::chrono::duration<double>(Clock::now() - start).count();
    }
    loop->start({.token = token,
                 .position = context,
                 .vocab = 248077,
                 .sampling = &greedy,
                 .generated = std::span(&token, 1),
                 .stops = {},
                 .uniform = {}});
    loop->submit();  // records the step
    loop->next();
    const auto start = Clock::now();
    loop->submit();
    for (int i = 1; i < kTokens; ++i) {
      loop->submit();
      loop->next();
    }
    loop->next();
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  Device& device_;
  std::unique_ptr<Ops> all_;
  Model model_;
  std::vector<std::int32_t> tokens_;
  std::vector<float> logits_;
};

}  // namespace

int run_benchmark(int argc, char** argv) {
  const auto device = make_device(parse_device_kind(argc > 1 ? argv[1] : "auto"));
  if (device == nullptr) throw Error("ablation_bench: no GPU", "give cuda, metal or emulated");
  Bench bench(*device, full_shape());
  for (const Case& c : cases()) bench.run(c);
  return 0;
}

}  // namespace lily
