// GpuOps, declared for the files that implement it: memory.cpp, step.cpp (one row), rows.cpp (many rows),
// decode_loop.cpp.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "ops/gpu/gpu_ops.h"
#include "ops/gpu/state.h"
#include "ops/gpu/storage.h"

struct ExpertRows;  // src/kernels/experts_plan.h

namespace lily::gpu {

class GpuOps final : public Ops {
 public:
  GpuOps(Device& device, const ModelConfig& config, const GpuOptions& options);
  ~GpuOps() override;

  Weight load_linear(std::span<const QuantizedMatrix> parts) override;
  std::shared_ptr<const Storage> load_experts(const MlpMatrices& routed, const MlpMatrices& shared) override;
  Vector load_vector(std::span<const float> values) override;
  std::unique_ptr<SequenceState> new_state(std::int64_t capacity) override;
  Tensor tensor(std::int64_t rows, std::int64_t cols) override;
  void read(const Tensor& tensor, std::span<float> out) override;

  void embed(const Weight& table, std::span<const std::int32_t> tokens, Tensor& x) override;
  void project(const Tensor& x, const Vector& norm, const Weight& weight, Tensor& out) override;
  void project_add(const Tensor& in, const Weight& weight, Tensor& x) override;
  void gated_delta(const Tensor& projected, const GatedDeltaWeights& weights, std::int64_t layer, Batch batch,
                   Tensor& out) override;
  void attention(const Tensor& projected, const AttentionWeights& weights, std::int64_t layer, Batch batch,
                 Tensor& out) override;
  void mixture_of_experts(const MoeWeights& weights, Tensor& x) override;
  void lm_head(const Tensor& x, const Vector& norm, const Weight& head, std::span<const std::int64_t> rows,
               Tensor& logits) override;
  std::int64_t prefill_chunk() const override { return 4096; }
  std::unique_ptr<DecodeLoop> decode_loop(SequenceState& state, DecodeLoop::Forward forward) override;

 private:
  friend class GpuDecodeLoop;

  // ---- memory ----
  std::shared_ptr<Buffer> upload(std::span<const std::byte> bytes);
  Matrix load_matrix(const QuantizedMatrix& matrix);
  /// The tensor's memory; takes it from the pool when an op writes it for the first time.
  View<float> floats(const Tensor& tensor) const;
  View<float> write_floats(Tensor& tensor);
  static Activations& activations(const Tensor& tensor);
  void give_memory(Tensor& tensor, Format format);

  // ---- one row ----
  void set_position(const Segment& segment);
  void project_step(View<const float> x, const Vector& norm, const Matrix& weight, View<float> out);
  void project_add_step(const Activations& in, const Matrix& weight, View<float> x);
  void gated_delta_step(const Tensor& projected, const GatedDeltaWeights& weights, std::int64_t layer,
                        const Segment& segment, Tensor& out);
  void attention_step(const Tensor& projected, const AttentionWeights& weights, std::int64_t layer,
                      const Segment& segment, Tensor& out);
  void experts_step(const MoeWeights& weights, Tensor& x);
  struct Splits {
    std::int64_t count, span;  // span 0: the tokens shared out
  };
  Splits attention_splits(std::int64_t room) const;

  void gated_delta_parts_step(const Tensor& projected, const GatedDeltaWeights& weights, std::int64_t layer,
                              const Segment& segment, Tensor& out);
  void experts_up_step(const MoeWeights& weights, View<float> x, View<float> logits, View<float> act);
  void experts_down_step(const MoeWeights& weights, View<float> x, View<float> logits, View<float> act,
                         View<float> shared);
  std::int64_t packed_heads() const;
  bool real_experts() const;
  std::size_t chosen_bytes(const Matrix& stack) const;

  // ---- many rows ----
  View<const std::uint32_t> token_ids(std::span<const std::int32_t> tokens);
  /// rms_norm(x, norm) in operand order.
  std::shared_ptr<Buffer> normed_rows(const Tensor& x, const Vector& norm);
  void project_rows(const Tensor& x, const Vector& norm, const Matrix& weight, Tensor& out);
  void router_rows(const Buffer& n, const Matrix& router, std::int64_t rows, const Buffer& logits);
  void project_add_rows(const Activations& in, const Matrix& weight, Tensor& x);
  void gated_delta_rows(const Tensor& projected, const GatedDeltaWeights& weights, std::int64_t layer, Batch batch,
                        Tensor& out);
  void attention_rows(const Tensor& projected, const AttentionWeights& weights, std::int64_t layer, Batch batch,
                      Tensor& out);
  void experts_rows(const MoeWeights& weights, Tensor& x);
  std::int64_t expert_tile_rows(std::int64_t load) const;
  struct ExpandedMatrix expanded(const Matrix& matrix);
  void route_on_host(const ExpertRows& plan, const Buffer& ids, Buffer& tiles, Buffer& pair_at, Buffer& position_of);

  Device& device_;
  ModelConfig config_;
  GpuOptions options_;
  bool mma_;
  std::shared_ptr<BufferPool> pool_;
  std::shared_ptr<Buffer> turns_;
  std::int64_t turns_positions_ = 0;
  struct TokenIds {
    std::unique_ptr<Buffer> buffer;  // the host writes it without waiting for launches
    Device::Ticket last_use = 0;
  };
  std::array<TokenIds, 3> token_ids_;
  std::size_t token_ids_in_use_ = 0;
  class GpuDecodeLoop* recording_ = nullptr;  // the loop whose step is being recorded
};

const Matrix& matrix_of(const Weight& weight);
const Floats& floats_of(const Vector& vector);

}  // namespace lily::gpu
