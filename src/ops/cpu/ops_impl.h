// The CPU backend's class: each op splits its work into items for the thread pool and calls kernels. One .cpp per op
// family. Every output value is summed by one thread in an order that does not depend on the number of threads, so
// results are the same for any.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "model/config.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/memory.h"
#include "ops/cpu/state.h"
#include "ops/ops.h"
#include "support/thread_pool.h"

namespace lily::cpu {

/// Whether many rows go to the CPU's unit for products of matrices.
inline bool uses_matrix_unit(const Kernels& kernels, Activations activations) {
  return kernels.matrix_unit != nullptr && activations == Activations::kInt8;
}

/// A matrix unit multiplies an expert's rows faster than its codes come from memory, so more rows should share them. In
/// longer chunks a cancelled prompt would go on for many seconds.
inline std::int64_t prefill_chunk_of(const Kernels& kernels, Activations activations) {
  return uses_matrix_unit(kernels, activations) ? 1024 : 512;
}

class CpuOps final : public Ops {
 public:
  CpuOps(const ModelConfig& config, const Kernels& kernels, int threads, const CpuOptions& options);

  Weight load_linear(std::span<const QuantizedMatrix> parts) override;
  Weight load_table(const QuantizedMatrix& table) override;
  std::shared_ptr<const Storage> load_experts(const MlpMatrices& routed, const MlpMatrices& shared) override;
  Vector load_vector(std::span<const float> values) override;
  std::unique_ptr<SequenceState> new_state(std::int64_t capacity) override;
  std::int64_t prefill_chunk() const override { return prefill_chunk_of(kernels_, activations_); }
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

 private:
  /// Rows of activations for products with matrices: as floats, and as records for matrices that take them.
  struct Input {
    const float* values = nullptr;  // [rows, layout.in]
    const std::uint8_t* records = nullptr;
    RecordLayout layout;
  };
  Pages move_to_huge_pages(std::vector<QuantRows>& rows);

  struct ExpertGroup;  // the rows that go to one expert
  struct HiddenItem;   // some of its intermediate values
  struct AttendItem;   // some queries of one KV head over some ranges of tokens
  struct AttendWork;   // what the items of one call share
  struct AttendScratch;

  /// body(row) for each row, on all threads when there are enough of them to be worth it.
  template <typename Body>
  void for_rows(std::int64_t rows, const Body& body) {
    constexpr std::int64_t kParallelRows = 4;
    if (rows < kParallelRows) {
      for (std::int64_t row = 0; row < rows; ++row) body(row);
    } else {
      pool_.run(rows, [&](std::int64_t row, int) noexcept { body(row); });
    }
  }
  /// Some rows of a matrix times some rows of an input: out[i][j] (+)= w[begin + j] . x[index[i]].
  struct Product {
    const QuantRows* weight = nullptr;
    std::int64_t begin = 0;
    std::int64_t rows = 0;
    const std::int32_t* index = nullptr;
    std::int64_t m = 0;
    float* out = nullptr;
    std::int64_t out_stride = 0;
    bool add = false;
    bool same_input = false;          // as the product before, which had whole tiles of rows and the same scratch
    const QuantRows* next = nullptr;  // what the thread probably multiplies next, from row next_begin
    std::int64_t next_begin = 0;
  };
  bool takes_records(const QuantRows& weight) const {
    return activations_ != Activations::kFloat32 && fits_records(weight);
  }
  RecordLayout layout_of(std::int64_t in) const { return {in, activations_ == Activations::kInt8 ? 1 : 2}; }
  /// For rows of activations from which the matrix unit is worth it.
  bool by_matrix_unit(std::int64_t rows) const {
    constexpr std::int64_t kFrom = 10;
    return uses_matrix_unit(kernels_, activations_) && rows >= kFrom;
  }
  std::int64_t product_scratch(const QuantRows& weight) const {  // bytes, a multiple of 64
    auto bytes = takes_records(weight) ? kTilesAtOnce * integer_scratch(weight.in) : 4 * linear_scratch(weight);
    if (takes_records(weight) && uses_matrix_unit(kernels_, activations_)) {
      bytes = std::max(bytes, kernels_.matrix_unit_scratch(weight.in));
    }
    return (bytes + 63) / 64 * 64;
  }
  /// For gate and up, which may have codes of different widths.
  std::int64_t hidden_scratch(const Mlp& mlp) const {
    return std::max(product_scratch(mlp.gate), product_scratch(mlp.up));
  }
  static double stored_bytes(const QuantRows& weight) {
    return static_cast<double>(weight.out * weight.stored_row_bytes());
  }
  static double stored_bytes(const Weight& weight);
  static double operations(std::int64_t rows, std::int64_t out, std::int64_t in) {
    return 2.0 * static_cast<double>(rows) * static_cast<double>(out) * static_cast<double>(in);
  }
  void multiply(const Input& input, const Product& product, std::byte* scratch) const;
  void multiply_all(const Input& input, std::int64_t rows, const Weight& weight, float* out, bool add);
  /// Rows of floats for matrices with `in` columns; `norm` may be nullptr. The result holds until the next call.
  Input prepare(const Tensor& x, std::span<const std::int64_t> rows, const Vector* norm);
  std::byte* thread_scratch(std::int64_t bytes_per_thread) {
    return thread_scratch_.get<std::byte>(bytes_per_thread * pool_.size());
  }

  void delta_head(const Tensor& projected, const GatedDeltaWeights& weights, std::int64_t layer, const Segment& segment,
                  std::int64_t key_head, float* scratch, Tensor& out) const;

  void prepare_attention(const Tensor& projected, const AttentionWeights& weights, std::int64_t layer, Batch batch,
                         float* queries, float* work);
  void norm_and_rope(const float* x, const float* weight, const float* rotation, float factor, float* out) const;
  void rotation_at(std::int64_t position, float* rotation) const;
  std::vector<AttendItem> attention_items(Batch batch, std::int64_t layer) const;
  void attend(const AttendWork& work, const AttendItem& item, const Attended& all, const AttendScratch& scratch) const;
  void finish_attention(const AttendWork& work, const AttendItem& item, std::int64_t row,
                        const Attended& item_all) const;

  std::int64_t hidden_row_bytes(const QuantRows& down) const {
    return takes_records(down) ? layout_of(down.in).bytes() : 4 * down.in;
  }
  std::vector<ExpertGroup> route(const Input& input, std::int64_t rows, const MoeWeights& weights);
  /// `next`: what the thread probably does next; may be nullptr.
  void expert_hidden(const HiddenItem& item, const HiddenItem* next, const Input& input, std::byte* scratch,
                     std::byte* hidden) const;
  void expert_output(std::span<const ExpertGroup> groups, std::int64_t begin, std::int64_t rows, std::byte* hidden,
                     std::byte* scratch, Tensor& x) const;

  const ModelConfig config_;
  const Kernels& kernels_;
  const Activations activations_;
  Profile* const profile_;
  ThreadPool pool_;
  std::shared_ptr<TensorPool> tensors_;
  std::vector<double> inverse_frequencies_;  // [rotary_dim / 2]

  // Scratch areas, by what they hold during one op.
  Scratch thread_scratch_;
  Scratch normed_;
  Scratch records_;
  Scratch hidden_;
  Scratch scores_;
  Scratch partial_;
  Scratch queries_;
};

}  // namespace lily::cpu
