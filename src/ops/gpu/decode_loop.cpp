#include "ops/gpu/decode_loop.h"

#include <algorithm>

#include "kernels/kernels.h"

namespace lily::gpu {

std::unique_ptr<DecodeLoop> GpuOps::decode_loop(SequenceState& state, DecodeLoop::Forward forward) {
  if (!options_.tokens_on_device) return nullptr;
  return std::make_unique<GpuDecodeLoop>(*this, static_cast<State&>(state), std::move(forward));
}

GpuDecodeLoop::GpuDecodeLoop(GpuOps& ops, State& state, Forward forward)
    : ops_(ops), state_(state), forward_(std::move(forward)), pool_(std::make_shared<BufferPool>(ops.device_)) {
  const auto vocab = static_cast<std::size_t>(ops.config_.vocab_size);
  tokens_ = ops.device_.allocate(kTokenSlots * sizeof(uint));
  shown_ = ops.device_.allocate(kTokenSlots * sizeof(uint), Memory::kShared);
  uniforms_ = ops.device_.allocate(kTokenSlots * sizeof(float), Memory::kShared);
  parameters_ = ops.device_.allocate(sizeof(SelectParams));
  counts_ = ops.device_.allocate(vocab * sizeof(uint));
  bias_ = ops.device_.allocate(vocab * sizeof(float));
  kept_ = ops.device_.allocate(vocab * sizeof(float));
}

GpuDecodeLoop::~GpuDecodeLoop() {
  ops_.device_.wait(ops_.device_.submit());
}

void GpuDecodeLoop::start(const Start& start) {
  LILY_CHECK(start.stops.size() <= kMaxStops && start.sampling != nullptr);
  const SamplingParams& s = *start.sampling;
  SelectParams parameters{s.temperature,
                          static_cast<uint>(s.top_k),
                          s.top_p,
                          s.min_p,
                          s.presence_penalty,
                          s.frequency_penalty,
                          s.repetition_penalty,
                          !s.logit_bias.empty(),
                          static_cast<uint>(start.vocab),
                          static_cast<uint>(start.stops.size()),
                          {}};
  std::copy(start.stops.begin(), start.stops.end(), parameters.stop);
  Device& device = ops_.device_;
  device.write(*parameters_, 0, std::as_bytes(std::span(&parameters, 1)));
  const auto vocab = static_cast<std::size_t>(ops_.config_.vocab_size);
  if (parameters.has_bias != 0) {
    std::vector<float> bias(vocab);
    for (const auto& [id, value] : s.logit_bias) bias[static_cast<std::size_t>(id)] = value;
    device.write(*bias_, 0, std::as_bytes(std::span(bias)));
  }
  std::vector<uint> counts(vocab);
  for (const std::int32_t token : start.generated) ++counts[static_cast<std::size_t>(token)];
  device.write(*counts_, 0, std::as_bytes(std::span(counts)));
  device.write(*tokens_, 0, std::as_bytes(std::span(&start.token, 1)));
  const StepState step{static_cast<uint>(start.position), 0, 0};
  device.write(state_.step(), 0, std::as_bytes(std::span(&step, 1)));
  state_.place_at(-1);
  uniform_ = start.uniform;
  position_ = start.position;
  drawn_ = taken_ = 0;
  tickets_.clear();
  stops_.assign(start.stops.begin(), start.stops.end());
  stopped_by_.reset();
}

/// Makes the launches of one step; `take` submits or records them.
void GpuDecodeLoop::launch(const std::function<void()>& take) {
  ops_.device_.submit();
  std::swap(ops_.pool_, pool_);
  ops_.recording_ = this;
  const std::int32_t token = kDrawnToken;
  const Segment segment{&state_, 0, 1, position_};
  try {
    select(forward_(std::span(&token, 1), std::span(&segment, 1)));
    take();
  } catch (...) {
    ops_.recording_ = nullptr;
    std::swap(ops_.pool_, pool_);
    throw;
  }
  ops_.recording_ = nullptr;
  std::swap(ops_.pool_, pool_);
}

Device::Ticket GpuDecodeLoop::start_step() {
  Device& device = ops_.device_;
  Device::Ticket ticket = 0;
  if (!ops_.options_.recorded_steps) {
    launch([&] { ticket = device.submit(); });
    return ticket;
  }
  if (step_ == nullptr || cache_version_ != state_.cache_version()) {
    launch([&] { step_ = device.record(); });
    cache_version_ = state_.cache_version();
  }
  return device.submit(*step_);
}

void GpuDecodeLoop::select(const Tensor& logits) {
  const auto rows = static_cast<uint>(logits.cols);
  const uint groups = (rows + kSelectGroup - 1) / kSelectGroup;
  const auto adjusted = ops_.pool_->take(rows * sizeof(float));
  const auto tops = ops_.pool_->take(groups * sizeof(float));
  Device& device = ops_.device_;
  device.dispatch(kernels::select_adjust, {.groups = {(rows + 1023) / 1024}}, ops_.floats(logits), bias_->view<float>(),
                  counts_->view<uint>(), parameters_->view<SelectParams>(), state_.step().view<StepState>(),
                  kept_->view<float>(), adjusted->view<float>(), tops->view<float>(), rows);
  device.dispatch(kernels::select_token, {}, adjusted->view<float>(), tops->view<float>(),
                  parameters_->view<SelectParams>(), uniforms_->view<float>(), counts_->view<uint>(),
                  tokens_->view<uint>(), shown_->view<uint>(), state_.step().view<StepState>(), rows);
}

void GpuDecodeLoop::submit() {
  LILY_CHECK(drawn_ - taken_ < kTokenSlots / 2);
  state_.reserve(position_ + 1);
  ++drawn_;
  uniforms_->host_as<float>()[drawn_ % kTokenSlots] = uniform_ ? static_cast<float>(uniform_()) : 0.0F;
  tickets_.push_back(start_step());
  ++position_;
}

std::int32_t GpuDecodeLoop::next() {
  LILY_CHECK(!tickets_.empty());
  ops_.device_.wait(tickets_.front());
  tickets_.pop_front();
  if (stopped_by_) return *stopped_by_;
  const uint token = shown_->host_as<uint>()[++taken_ % kTokenSlots];
  if (token == kNoToken) {
    throw Error("no token can be sampled: every logit is NaN, -inf or forbidden",
                "the weights may be damaged, or the constraints on the reply allow nothing");
  }
  const auto id = static_cast<std::int32_t>(token);
  if (std::find(stops_.begin(), stops_.end(), id) != stops_.end()) stopped_by_ = id;
  return id;
}

void GpuDecodeLoop::read_logits(std::span<float> out) {
  LILY_CHECK(out.size() * sizeof(float) == kept_->size());
  ops_.device_.read(*kept_, 0, std::as_writable_bytes(out));
}

}  // namespace lily::gpu
