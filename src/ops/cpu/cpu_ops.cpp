#include "ops/cpu/cpu_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ops/cpu/ops_impl.h"
#include "support/error.h"

namespace lily {
namespace cpu {

CpuOps::CpuOps(const ModelConfig& config, const Kernels& kernels, int threads, const CpuOptions& options)
    : config_(config),
      kernels_(kernels),
      activations_(options.activations),
      profile_(options.profile),
      pool_(threads),
      tensors_(std::make_shared<TensorPool>()) {
  for (std::int64_t i = 0; i < config.rotary_dim; i += 2) {
    const double exponent = static_cast<double>(i) / static_cast<double>(config.rotary_dim);
    inverse_frequencies_.push_back(std::pow(config.rope_theta, -exponent));
  }
}

Weight CpuOps::load_linear(std::span<const QuantizedMatrix> parts) {
  LILY_CHECK(!parts.empty());
  Weight weight;
  weight.in = parts.front().in;
  std::vector<QuantRows> rows;
  for (const QuantizedMatrix& part : parts) {
    LILY_CHECK(part.in == weight.in && part.experts == 1);
    rows.push_back(expert_rows(part, 0));
    weight.out += part.out;
  }
  weight.storage = std::make_shared<MatrixStorage>(std::move(rows));
  return weight;
}

std::shared_ptr<const Storage> CpuOps::load_experts(const MlpMatrices& routed, const MlpMatrices& shared) {
  std::vector<Mlp> experts;
  for (std::int64_t e = 0; e < routed.gate_proj.experts; ++e) {
    experts.push_back(
        {expert_rows(routed.gate_proj, e), expert_rows(routed.up_proj, e), expert_rows(routed.down_proj, e)});
  }
  const Mlp shared_mlp{expert_rows(shared.gate_proj, 0), expert_rows(shared.up_proj, 0),
                       expert_rows(shared.down_proj, 0)};
  return std::make_shared<ExpertStorage>(std::move(experts), shared_mlp);
}

Vector CpuOps::load_vector(std::span<const float> values) {
  return {std::make_shared<VectorStorage>(std::vector<float>(values.begin(), values.end())),
          static_cast<std::int64_t>(values.size())};
}

std::unique_ptr<SequenceState> CpuOps::new_state(std::int64_t capacity) {
  return std::make_unique<CpuState>(config_, capacity, activations_ != Activations::kFloat32);
}

Tensor CpuOps::tensor(std::int64_t rows, std::int64_t cols) {
  LILY_CHECK(rows >= 0 && cols >= 0);
  return {tensors_->allocate(static_cast<std::size_t>(rows * cols) * sizeof(float)), rows, cols};
}

void CpuOps::read(const Tensor& tensor, std::span<float> out) {
  LILY_CHECK(static_cast<std::int64_t>(out.size()) == tensor.rows * tensor.cols);
  std::copy_n(values(tensor), out.size(), out.data());
}

}  // namespace cpu

std::vector<std::string> cpu_targets() {
  return cpu::kernel_targets();
}

Activations activations_named(std::string_view name) {
  if (name == "float32") return Activations::kFloat32;
  if (name == "int16" || name.empty()) return Activations::kInt16;
  if (name == "int8") return Activations::kInt8;
  throw Error(fmt::format("there are no activations '{}'", name), "use float32, int16 or int8");
}

std::unique_ptr<Ops> make_cpu_ops(const ModelConfig& config, const CpuOptions& options) {
  const cpu::Kernels* kernels = cpu::find_kernels(options.target);
  if (kernels == nullptr) {
    throw Error(fmt::format("this CPU or build has no instruction set '{}'", options.target),
                fmt::format("It has: {}", fmt::join(cpu_targets(), ", ")));
  }
  const int threads = options.threads > 0 ? options.threads : usable_cores();
  return std::make_unique<cpu::CpuOps>(config, *kernels, threads, options);
}

}  // namespace lily
