#include "benchmark/ablation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "benchmark/speed.h"
#include "ops/gpu/synthetic.h"

namespace lily {
namespace {

using Clock = std::chrono::steady_clock;
using Phase = Ablation::Phase;
using DeltaRule = GpuOptions::DeltaRule;

constexpr std::int64_t kStride = 7919;      // between the ids of a made-up prompt
constexpr std::int64_t kBlockTokens = 512;  // of a fixed block of attention

/// One of the two engines that are compared.
class Side {
 public:
  Side(Device& device, const Model& model, const GpuOptions& options, bool overlap, std::int64_t chunk)
      : device_(device), model_(model), ops_(make_gpu_ops(device, model.config, options)), overlap_(overlap) {
    chunk_ = chunk > 0 ? chunk : ops_->prefill_chunk();
    logits_.resize(static_cast<std::size_t>(model.config.vocab_size));
  }

  /// Room for what will be measured; a cache of random values where a reply goes on from `context` tokens.
  void prepare(Phase phase, std::int64_t length, std::int64_t tokens) {
    const std::int64_t room = length + tokens + 2;
    state_ = ops_->new_state(room);
    state_->reset();
    if (phase == Phase::kDecode) fill_cache(device_, model_.config, *state_, room);
  }
  void forget() { state_ = nullptr; }

  double seconds(Phase phase, std::int64_t length, std::int64_t tokens) {
    device_.set_overlap(overlap_);
    const double taken = phase == Phase::kPrefill ? prefill(length) : decode(length, tokens);
    device_.set_overlap(true);
    return taken;
  }

 private:
  Tensor forward_last(std::span<const std::int32_t> tokens, std::int64_t position, bool wanted) {
    const auto rows = static_cast<std::int64_t>(tokens.size()), last = rows - 1;
    const Segment segment{state_.get(), 0, rows, position};
    return forward(*ops_, model_, tokens, std::span(&segment, 1), std::span(&last, wanted ? 1 : 0));
  }

  double prefill(std::int64_t length) {
    std::vector<std::int32_t> tokens;
    const std::int64_t ids = std::min<std::int64_t>(model_.config.vocab_size, 248000);
    for (std::int64_t i = 0; i < length; ++i) tokens.push_back(static_cast<std::int32_t>(i * kStride % ids));
    state_->reset();
    device_.wait(device_.submit());
    const auto start = Clock::now();
    for (std::int64_t done = 0; done < length;) {
      const std::int64_t rows = std::min(chunk_, length - done);
      const bool ends = done + rows == length;
      const Tensor out = forward_last(
          std::span(tokens).subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(rows)), done, ends);
      if (ends) ops_->read(out, logits_);
      done += rows;
    }
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  double decode(std::int64_t context, std::int64_t tokens) {
    const auto loop = ops_->decode_loop(*state_, [&](std::span<const std::int32_t> ids, Batch batch) {
      constexpr std::int64_t kFirst = 0;
      return forward(*ops_, model_, ids, batch, std::span(&kFirst, 1));
    });
    return loop == nullptr ? decode_by_host(context, tokens) : decode_on_device(*loop, context, tokens);
  }

  double decode_on_device(DecodeLoop& loop, std::int64_t context, std::int64_t tokens) {
    SamplingParams greedy;
    greedy.temperature = 0;
    const std::int32_t token = 1;
    loop.start({.token = token,
                .position = context,
                .vocab = static_cast<std::int32_t>(model_.config.vocab_size),
                .sampling = &greedy,
                .generated = std::span(&token, 1),
                .stops = {},
                .uniform = {}});
    loop.submit();  // records the step
    loop.next();
    const auto start = Clock::now();
    loop.submit();
    for (std::int64_t i = 1; i < tokens; ++i) {
      loop.submit();
      loop.next();
    }
    loop.next();
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  double decode_by_host(std::int64_t context, std::int64_t tokens) {
    std::int32_t token = 1;
    const auto start = Clock::now();
    for (std::int64_t i = 0; i < tokens; ++i) {
      ops_->read(forward_last(std::span(&token, 1), context + i, true), logits_);
      token = static_cast<std::int32_t>(std::max_element(logits_.begin(), logits_.end()) - logits_.begin());
    }
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  Device& device_;
  const Model& model_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<SequenceState> state_;
  bool overlap_;
  std::int64_t chunk_ = 0;
  std::vector<float> logits_;
};

std::vector<Ablation> prefill_ablations() {
  constexpr auto kPrefill = Phase::kPrefill;
  const auto scan = [](GpuOptions& o) { o.delta_rule = DeltaRule::kScan; };
  return {
      {kPrefill,
       {512},
       "dequantisation in the products",
       "weights made bf16 in memory first",
       "+77.4% at 512",
       [](GpuOptions& o) { o.dequantise_in_products = false; }},
      {kPrefill,
       {512},
       "routing on the GPU",
       "the host sorts rows by expert",
       "+89% at 512",
       [](GpuOptions& o) { o.routing_on_device = false; }},
      {kPrefill,
       {2048},
       "expert tiles of 32 rows",
       "16 rows",
       "+13.2% at 2,048",
       [](GpuOptions& o) { o.expert_tile_rows = 16; },
       [](GpuOptions& o) { o.expert_tile_rows = 32; }},
      {kPrefill,
       {2048},
       "scan with its state in registers",
       "in memory between blocks of 16",
       "+5.6% at 2,048",
       [](GpuOptions& o) { o.delta_rule = DeltaRule::kBlockScan; },
       scan},
      {.phase = kPrefill,
       .lengths = {3840},
       .name = "chunks of 2,048",
       .instead = "the whole prompt at once",
       .published = "+2.1% at 3,840",
       .turn_off = [](GpuOptions&) {},
       .chunk = 2048,
       .chunk_off = kWholePrompt},
      {.phase = kPrefill,
       .lengths = {4096},
       .name = "chunks of 4,096",
       .instead = "chunks of 512",
       .published = "",
       .turn_off = [](GpuOptions&) {},
       .chunk = 4096,
       .chunk_off = 512},
      {.phase = kPrefill,
       .lengths = {512},
       .name = "barriers where needed",
       .instead = "between all launches",
       .published = "",
       .turn_off = [](GpuOptions&) {},
       .overlap = false},
      {kPrefill,
       {4096, 32768},
       "query heads packed (GQA)",
       "each reads the cache itself",
       "",
       [](GpuOptions& o) { o.packed_heads = false; }},
      {kPrefill,
       {32768},
       "coalesced KV cache",
       "16 bytes of a token together",
       "",
       [](GpuOptions& o) { o.coalesced_cache = false; }},
      {.phase = kPrefill,
       .lengths = {4096},
       .name = "expert tiles by load",
       .instead = "32 rows",
       .published = "",
       .turn_off = [](GpuOptions& o) { o.expert_tile_rows = 32; },
       .tensor_cores = true},
      {.phase = kPrefill,
       .lengths = {512, 2048},
       .name = "expert tiles by load",
       .instead = "128 rows",
       .published = "",
       .turn_off = [](GpuOptions& o) { o.expert_tile_rows = 128; },
       .tensor_cores = true},
      {.phase = kPrefill,
       .lengths = {4096},
       .name = "delta rule by chunks of 64",
       .instead = "the scan",
       .published = "",
       .turn_off = scan,
       .tensor_cores = true},
      {.phase = kPrefill,
       .lengths = {512},
       .name = "kernels for tensor cores",
       .instead = "portable tiles",
       .published = "",
       .turn_off = [](GpuOptions& o) { o.tensor_cores = GpuOptions::TensorCores::kNever; },
       .tensor_cores = true},
  };
}

std::vector<Ablation> decode_ablations() {
  constexpr auto kDecode = Phase::kDecode;
  return {
      {kDecode,
       {4096},
       "fused: experts' gate, up, activation",
       "three launches",
       "",
       [](GpuOptions& o) { o.fused_experts_up = false; }},
      {kDecode,
       {4096},
       "fused: experts' down, shares, shared",
       "two launches",
       "",
       [](GpuOptions& o) { o.fused_experts_down = false; }},
      {kDecode,
       {4096},
       "fused: norm and turn of q and k",
       "a launch before attention",
       "",
       [](GpuOptions& o) { o.fused_query_key = false; }},
      {kDecode,
       {4096},
       "fused: conv, recurrence, norms",
       "three launches",
       "",
       [](GpuOptions& o) { o.fused_delta = false; }},
      {kDecode,
       {4096},
       "token hand-off on the GPU",
       "the host draws",
       "",
       [](GpuOptions& o) { o.tokens_on_device = false; }},
      {kDecode, {4096}, "recorded steps", "launches made anew", "", [](GpuOptions& o) { o.recorded_steps = false; }},
      {.phase = kDecode,
       .lengths = {4096},
       .name = "barriers where needed",
       .instead = "between all launches",
       .published = "",
       .turn_off = [](GpuOptions&) {},
       .overlap = false},
      {kDecode,
       {32768},
       "coalesced KV cache",
       "16 bytes of a token together",
       "+23.8% at 32K",
       [](GpuOptions& o) { o.coalesced_cache = false; }},
      {kDecode,
       {4096, 32768},
       "query heads packed (GQA)",
       "each reads the cache itself",
       "",
       [](GpuOptions& o) { o.packed_heads = false; }},
      {kDecode,
       {4096, 32768},
       "split KV cache",
       "a threadgroup for each KV head",
       "",
       [](GpuOptions& o) { o.attention_groups = 1; }},
      {kDecode,
       {32768, 65536, 131072},
       "fixed blocks of 512 tokens",
       "as many splits as fill the GPU",
       "+7.7/27.4/40.2% at 32K/64K/128K",
       [](GpuOptions& o) { o.attention_block = 0; },
       [](GpuOptions& o) { o.attention_block = kBlockTokens; }},
      {.phase = kDecode,
       .lengths = {4096},
       .name = "kernels for tensor cores",
       .instead = "portable tiles",
       .published = "",
       .turn_off = [](GpuOptions& o) { o.tensor_cores = GpuOptions::TensorCores::kNever; },
       .tensor_cores = true},
  };
}

AblationResult measure(Side& with, Side& without, const Ablation& ablation, std::int64_t length,
                       const AblationPlan& plan) {
  for (Side* side : {&with, &without}) side->prepare(ablation.phase, length, plan.tokens);
  std::vector<double> seconds, seconds_without;
  for (int round = 0; round <= plan.rounds; ++round) {
    const double first = with.seconds(ablation.phase, length, plan.tokens);
    const double second = without.seconds(ablation.phase, length, plan.tokens);
    if (round == 0) continue;  // warms up
    seconds.push_back(first);
    seconds_without.push_back(second);
  }
  for (Side* side : {&with, &without}) side->forget();
  const auto tokens = static_cast<double>(ablation.phase == Phase::kPrefill ? length : plan.tokens);
  return {ablation, length, tokens / spread_of(seconds).median, tokens / spread_of(seconds_without).median};
}

}  // namespace

std::vector<Ablation> gpu_ablations() {
  std::vector<Ablation> all = prefill_ablations();
  for (Ablation& ablation : decode_ablations()) all.push_back(std::move(ablation));
  return all;
}

void run_gpu_ablations(Device& device, const Model& model, const AblationPlan& plan,
                       const std::function<void(const AblationResult&)>& show) {
  const bool tensor_cores = device.info().kind == DeviceKind::kCuda;
  for (const Ablation& ablation : gpu_ablations()) {
    if (ablation.tensor_cores && !tensor_cores) continue;
    GpuOptions options;
    if (ablation.both) ablation.both(options);
    GpuOptions less = options;
    ablation.turn_off(less);
    Side with(device, model, options, true, ablation.chunk);
    Side without(device, model, less, ablation.overlap, ablation.chunk_off > 0 ? ablation.chunk_off : ablation.chunk);
    for (const std::int64_t length : plan.lengths.empty() ? ablation.lengths : plan.lengths)
      show(measure(with, without, ablation, length, plan));
  }
}

std::string ablation_heading() {
  return fmt::format("  {:<9}{:>7}   {:<38}{:<36}{:>10}{:>10}{:>10}   {}\n", "", "tokens", "optimisation", "against",
                     "tok/s", "without", "gain", "published");
}

std::string ablation_line(const AblationResult& result) {
  const Ablation& ablation = result.ablation;
  return fmt::format("  {:<9}{:>7}   {:<38}{:<36}{:>10.1f}{:>10.1f}{:>+9.1f}%   {}\n",
                     ablation.phase == Phase::kPrefill ? "prefill" : "decode", result.length, ablation.name,
                     ablation.instead, result.with, result.without, 100 * (result.with / result.without - 1),
                     ablation.published);
}

}  // namespace lily
