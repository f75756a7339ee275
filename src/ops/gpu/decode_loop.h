// Decoding on the device: see DecodeLoop in ops.h. A step is recorded when it is first needed, and again when the
// KV cache has moved.
#pragma once

#include <deque>
#include <optional>
#include <vector>

#include "ops/gpu/ops_impl.h"

namespace lily::gpu {

class GpuDecodeLoop final : public DecodeLoop {
 public:
  GpuDecodeLoop(GpuOps& ops, State& state, Forward forward);
  ~GpuDecodeLoop() override;

  void start(const Start& start) override;
  void submit() override;
  std::int32_t next() override;
  void read_logits(std::span<float> out) override;

  const Buffer& tokens() const { return *tokens_; }
  const Buffer& state_step() const { return state_.step(); }

 private:
  void launch(const std::function<void()>& take);
  Device::Ticket start_step();
  void select(const Tensor& logits);

  GpuOps& ops_;
  State& state_;
  Forward forward_;
  std::shared_ptr<BufferPool> pool_;  // of the recorded step's activations
  std::unique_ptr<Buffer> tokens_, shown_, uniforms_, parameters_, counts_, bias_, kept_;
  std::unique_ptr<Step> step_;
  int cache_version_ = -1;
  bool has_bias_ = false;
  std::function<double()> uniform_;
  std::int64_t position_ = 0;  // of the next step to submit
  std::uint64_t drawn_ = 0, taken_ = 0;
  std::deque<Device::Ticket> tickets_;
  std::vector<std::int32_t> stops_;
  std::optional<std::int32_t> stopped_by_;
};

}  // namespace lily::gpu
