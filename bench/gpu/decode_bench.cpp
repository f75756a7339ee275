// Decode speed at the full shape with made-up weights: whole tokens, and where the time goes by leaving parts out or
// running them alone.
//
//   decode_bench [cuda|metal|emulated] [context ...]      negative context: three plain steps there, for a profiler
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <variant>

#include "benchmark.h"
#include "ops/gpu/synthetic.h"

namespace lily {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSteps = 64;
constexpr int kRounds = 5;

/// Median seconds per step.
double time_loop(DecodeLoop& loop, std::int64_t context, const SamplingParams& sampling) {
  const std::int32_t token = 1000;
  std::vector<double> seconds;
  for (int round = 0; round <= kRounds; ++round) {
    loop.start({.token = token,
                .position = context,
                .vocab = 248077,
                .sampling = &sampling,
                .generated = std::span(&token, 1),
                .stops = {},
                .uniform = [] { return 0.5; }});
    loop.submit();
    loop.next();
    const auto start = Clock::now();
    loop.submit();
    for (int i = 1; i < kSteps; ++i) {
      loop.submit();
      loop.next();
    }
    loop.next();
    const std::chrono::duration<double> taken = Clock::now() - start;
    if (round > 0) seconds.push_back(taken.count() / kSteps);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

struct Bench {
  Device& device;
  Ops& ops;
  const Model& model;
  SequenceState& state;

  void run(const char* what, std::int64_t context, const SamplingParams& sampling, DecodeLoop::Forward forward_pass) {
    const auto loop = ops.decode_loop(state, std::move(forward_pass));
    const Counters before = device.counters();
    const double seconds = time_loop(*loop, context, sampling);
    Counters used = device.counters();
    const double steps = (kSteps + 1.0) * (kRounds + 1);
    const double bytes = double(used.weight_bytes - before.weight_bytes) / steps;
    fmt::print("{:28} context {:6}  {:8.1f} us  {:7.1f} /s  {:4.0f} launches  {:5.2f} TB/s of weights\n", what, context,
               seconds * 1e6, 1 / seconds, double(used.dispatches - before.dispatches) / steps, bytes / seconds / 1e12);
    std::fflush(stdout);
  }

  Tensor whole(std::span<const std::int32_t> tokens, Batch batch) {
    const std::int64_t row = 0;
    return forward(ops, model, tokens, batch, std::span(&row, 1));
  }

  /// Only the parts asked for, of every layer.
  struct Parts {
    bool in_proj = false, mixer = false, out_proj = false, experts = false, delta = true, attention = true;
  };
  Tensor parts(std::span<const std::int32_t> tokens, Batch batch, const Parts& p) {
    const ModelConfig& c = model.config;
    Tensor x = ops.tensor(1, c.hidden_size);
    ops.embed(model.embed_tokens, tokens, x);
    std::int64_t delta_index = 0, attention_index = 0;
    Tensor delta_in = ops.tensor(1, c.linear_rows()), attention_in = ops.tensor(1, c.attention_rows());
    Tensor mixed = ops.tensor(1, c.value_rows());
    const auto& first_delta = std::get<GatedDeltaWeights>(model.layers[0].mixer);
    const auto& first_attention = std::get<AttentionWeights>(model.layers[3].mixer);
    ops.project(x, first_delta.input_layernorm, first_delta.in_proj, delta_in);
    ops.project(x, first_attention.input_layernorm, first_attention.in_proj, attention_in);
    ops.attention(attention_in, first_attention, 0, batch, mixed);
    for (const Layer& layer : model.layers) {
      if (const auto* delta = std::get_if<GatedDeltaWeights>(&layer.mixer)) {
        if (p.delta) {
          if (p.in_proj) ops.project(x, delta->input_layernorm, delta->in_proj, delta_in);
          if (p.mixer) ops.gated_delta(delta_in, *delta, delta_index, batch, mixed);
          if (p.out_proj) ops.project_add(mixed, delta->out_proj, x);
        }
        ++delta_index;
      } else {
        const auto& attention = std::get<AttentionWeights>(layer.mixer);
        if (p.attention) {
          if (p.in_proj) ops.project(x, attention.input_layernorm, attention.in_proj, attention_in);
          if (p.mixer) ops.attention(attention_in, attention, attention_index, batch, mixed);
          if (p.out_proj) ops.project_add(mixed, attention.o_proj, x);
        }
        ++attention_index;
      }
      if (p.experts) ops.mixture_of_experts(layer.moe, x);
    }
    Tensor logits = ops.tensor(1, c.vocab_size);
    const std::int64_t row = 0;
    ops.lm_head(x, model.norm, model.lm_head, std::span(&row, 1), logits);
    return logits;
  }
};

}  // namespace

int run_benchmark(int argc, char** argv) {
  const auto device = require_gpu("decode_bench", argc > 1 ? argv[1] : "auto");
  std::vector<std::int64_t> contexts;
  for (int i = 2; i < argc; ++i) contexts.push_back(std::atoll(argv[i]));
  if (contexts.empty()) contexts = {4096};
  const ModelConfig config = full_shape();
  const auto start = Clock::now();
  const auto ops = make_gpu_ops(*device, config);
  const Model model = make_synthetic_model(*device, *ops, config);
  const bool plain = contexts[0] < 0;
  contexts[0] = std::abs(contexts[0]);
  const std::int64_t longest = *std::max_element(contexts.begin(), contexts.end());
  const auto state = ops->new_state(longest + kSteps + 8);
  state->reset();
  fill_cache(*device, config, *state, longest + kSteps + 8);
  fmt::print("{}: {:.2f} GB in use, made in {:.1f} s\n", device->info().name, double(device->memory_in_use()) / 1e9,
             std::chrono::duration<double>(Clock::now() - start).count());
  for (std::int64_t i = 0; plain && i < 3; ++i) {
    const std::int32_t token = 1000;
    const Segment segment{state.get(), 0, 1, contexts[0] + i};
    const std::int64_t row = 0;
    forward(*ops, model, std::span(&token, 1), std::span(&segment, 1), std::span(&row, 1));
    device->wait(device->submit());
  }
  if (plain) return 0;
  Bench bench{*device, *ops, model, *state};
  SamplingParams greedy, sampled = SamplingParams::defaults(true);
  greedy.temperature = 0;
  const auto whole = [&](auto tokens, Batch batch) { return bench.whole(tokens, batch); };
  for (const std::int64_t context : contexts) {
    bench.run("greedy", context, greedy, whole);
    bench.run("sampled", context, sampled, whole);
  }
  const auto only = [&](const char* what, const Bench::Parts& parts) {
    bench.run(what, contexts[0], greedy,
              [&, parts](auto tokens, Batch batch) { return bench.parts(tokens, batch, parts); });
  };
  only("head and selection, base", {});
  only("+ delta in_proj x 30", {.in_proj = true, .attention = false});
  only("+ delta rule x 30", {.mixer = true, .attention = false});
  only("+ delta out_proj x 30", {.out_proj = true, .attention = false});
  only("+ attention in_proj x 10", {.in_proj = true, .delta = false});
  only("+ attention x 10", {.mixer = true, .delta = false});
  only("+ attention o_proj x 10", {.out_proj = true, .delta = false});
  only("+ experts x 40", {.experts = true});
  return 0;
}

}  // namespace lily
