#include "selftest/self_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "model/model.h"
#include "ops/gpu/gpu_ops.h"
#include "ops/gpu/synthetic.h"
#include "sampling/sampling_params.h"

namespace lily {
namespace {

struct Part {
  const char* name;
  ModelConfig config;
  int prompt;  // tokens; the kernels for many rows run from two on
  int decoded;
};

ModelConfig small_shape(std::int64_t head_dim, std::int64_t linear_head_dim) {
  ModelConfig c = full_shape();
  c.hidden_size = 128;
  c.num_hidden_layers = c.full_attention_interval = 2;
  c.vocab_size = 384;
  c.num_attention_heads = 4;
  c.head_dim = head_dim;
  c.rotary_dim = head_dim / 4;
  c.linear_num_key_heads = 2;
  c.linear_num_value_heads = 4;
  c.linear_key_head_dim = c.linear_value_head_dim = linear_head_dim;
  c.num_experts = 8;
  c.num_experts_per_tok = 4;
  c.moe_intermediate_size = c.shared_expert_intermediate_size = 64;
  return c;
}

/// The real model's widths; what only repeats is cut.
ModelConfig real_widths() {
  ModelConfig c = full_shape();
  c.num_hidden_layers = c.full_attention_interval = 2;
  c.vocab_size = 512;
  c.num_experts = 9;
  return c;
}

std::vector<Part> parts() {
  return {{"small heads", small_shape(128, 64), 70, 3},
          {"wide heads", small_shape(256, 128), 37, 3},
          {"the model's widths", real_widths(), 1, 2}};
}

class Timeline {
 public:
  Timeline(Ops& ops, const Model& model) : ops_(ops), model_(model), state_(ops.new_state(128)) { state_->reset(); }

  void prompt(int tokens) {
    std::vector<std::int32_t> ids;
    for (int i = 0; i < tokens; ++i) ids.push_back(static_cast<std::int32_t>(i * 37 % model_.config.vocab_size));
    const Segment segment{state_.get(), 0, tokens, 0};
    const std::int64_t last = tokens - 1;
    const Tensor logits = forward(ops_, model_, ids, std::span(&segment, 1), std::span(&last, 1));
    std::vector<float> values(static_cast<std::size_t>(logits.cols));
    ops_.read(logits, values);
    position_ = tokens;
  }

  /// With every step of the sampler.
  void decode(int tokens) {
    const auto loop = ops_.decode_loop(*state_, [this](std::span<const std::int32_t> ids, Batch batch) {
      constexpr std::int64_t kFirst = 0;
      return forward(ops_, model_, ids, batch, std::span(&kFirst, 1));
    });
    if (loop == nullptr) return;
    SamplingParams sampling;
    sampling.min_p = 0.01F;
    sampling.presence_penalty = 0.5F;
    sampling.repetition_penalty = 1.1F;
    sampling.logit_bias = {{3, 1.0F}};
    DecodeLoop::Start start;
    start.token = 1;
    start.position = position_;
    start.vocab = static_cast<std::int32_t>(model_.config.vocab_size);
    start.sampling = &sampling;
    const std::int32_t generated[] = {1};
    start.generated = generated;
    start.uniform = [] { return 0.5; };
    loop->start(start);
    for (int i = 0; i < tokens; ++i) {
      loop->submit();
      loop->next();
    }
  }

 private:
  Ops& ops_;
  const Model& model_;
  std::unique_ptr<SequenceState> state_;
  std::int64_t position_ = 0;
};

void run(Device& device, const Part& part) {
  const auto ops = make_gpu_ops(device, part.config);
  const Model model = make_synthetic_model(device, *ops, part.config);
  Timeline timeline(*ops, model);
  timeline.prompt(part.prompt);
  timeline.decode(part.decoded);
}

std::string verdict_of(const KernelVerdict& kernel) {
  if (!kernel.failure.empty()) return "FAILED: " + kernel.failure;
  std::string text = kernel.right(SelfTestReport::kTolerance) ? "right" : "WRONG";
  if (kernel.different > 0) text += fmt::format(", {} words differ", kernel.different);
  return text;
}

}  // namespace

bool SelfTestReport::passed() const {
  return std::all_of(kernels.begin(), kernels.end(), [](const KernelVerdict& k) { return k.right(kTolerance); });
}

SelfTestReport run_self_test(std::unique_ptr<Device> device, const std::function<void(std::string_view)>& progress) {
  const auto begin = std::chrono::steady_clock::now();
  CheckingDevice checking(std::move(device));
  for (const Part& part : parts()) {
    if (progress) progress(part.name);
    run(checking, part);
  }
  SelfTestReport report;
  report.device = checking.info();
  report.kernels = checking.verdicts();
  for (const Entry* entry : kernels::all_entries()) {
    const auto seen = [&](const KernelVerdict& kernel) { return kernel.name == entry->name; };
    if (std::none_of(report.kernels.begin(), report.kernels.end(), seen)) report.unused.push_back(entry->name);
  }
  std::sort(report.unused.begin(), report.unused.end());
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

std::string describe(const SelfTestReport& report) {
  const DeviceInfo& device = report.device;
  std::string text = fmt::format("device: {} ({}), {:.1f} GiB{}\n", device.name, to_string(device.kind),
                                 static_cast<double>(device.memory_budget) / (1 << 30),
                                 device.tensor_ops ? ", with tensor operations" : "");
  std::size_t right = 0;
  text += fmt::format("{:<32} {:>8} {:>12}\n", "kernel", "launches", "worst error");
  for (const KernelVerdict& kernel : report.kernels) {
    right += kernel.right(SelfTestReport::kTolerance);
    text += fmt::format("{:<32} {:>8} {:>12.1e}  {}\n", kernel.name, kernel.launches, kernel.worst_error,
                        verdict_of(kernel));
  }
  std::string unused;
  for (const std::string& name : report.unused) unused += (unused.empty() ? "" : ", ") + name;
  if (!unused.empty()) text += fmt::format("not used on this device: {}\n", unused);
  text += fmt::format("{} of {} kernels right, in {:.0f} s\n", right, report.kernels.size(), report.seconds);
  return text;
}

}  // namespace lily
