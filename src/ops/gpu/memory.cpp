// GpuOps: weights, activations, states.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "ops/gpu/ops_impl.h"
#include "support/bfloat16.h"

namespace lily {

std::unique_ptr<Ops> make_gpu_ops(Device& device, const ModelConfig& config, const GpuOptions& options) {
  return std::make_unique<gpu::GpuOps>(device, config, options);
}

namespace gpu {
namespace {

constexpr std::size_t kAlignment = 16;  // of what kernels load at once

void require_size(const char* field, std::int64_t found, std::initializer_list<std::int64_t> sizes) {
  if (std::find(sizes.begin(), sizes.end(), found) != sizes.end()) return;
  std::string list;
  for (const std::int64_t size : sizes) list += fmt::format("{}{}", list.empty() ? "" : " or ", size);
  throw Error(fmt::format("the GPU has no kernel for {} {}, expected {}", field, found, list), "use --device cpu");
}

void require_multiple(const char* field, std::int64_t found, std::int64_t factor, std::int64_t most) {
  if (found > 0 && found % factor == 0 && found <= most) return;
  throw Error(
      fmt::format("the GPU has no kernel for {} {}, expected a multiple of {} up to {}", field, found, factor, most),
      "use --device cpu");
}

void check_sizes(const ModelConfig& c) {
  constexpr std::int64_t kMost = 1 << 16;
  require_size("group_size", c.group_size, {64});
  require_size("head_dim", c.head_dim, {128, 256});
  require_size("rotary dimensions", c.rotary_dim, {c.head_dim / 4});
  require_size("linear_key_head_dim", c.linear_key_head_dim, {64, 128});
  require_size("linear_value_head_dim", c.linear_value_head_dim, {c.linear_key_head_dim});
  require_size("linear_conv_kernel_dim", c.linear_conv_kernel_dim, {4});
  require_multiple("linear_num_value_heads", c.linear_num_value_heads, 4, kMost);
  require_multiple("hidden_size", c.hidden_size, 64, kMost);
  require_multiple("moe_intermediate_size", c.moe_intermediate_size, 64, kMost);
  require_multiple("shared_expert_intermediate_size", c.shared_expert_intermediate_size, 64, kMost);
  require_multiple("num_experts", c.num_experts, 1, 256);
  require_multiple("num_experts_per_tok", c.num_experts_per_tok, 1, std::min<std::int64_t>(16, c.num_experts));
  require_multiple("num_attention_heads / num_key_value_heads", c.num_attention_heads / c.num_key_value_heads, 1, 8);
}

std::span<const std::byte> bytes_of(const QuantizedMatrix& m, int which) {
  return which == 0 ? std::as_bytes(m.codes) : std::as_bytes(which == 1 ? m.scales : m.biases);
}

void check_matrix(const QuantizedMatrix& m) {
  if (m.group != 64 || (m.bits != 4 && m.bits != 8)) {
    throw Error(fmt::format("the GPU has no kernel for {} bits in groups of {}, expected 4 or 8 in groups of 64",
                            m.bits, m.group),
                "use --device cpu");
  }
}

}  // namespace

const Matrix& matrix_of(const Weight& weight) {
  return static_cast<const MatrixStorage&>(*weight.storage).matrix;
}
const Floats& floats_of(const Vector& vector) {
  return static_cast<const Floats&>(*vector.storage);
}

GpuOps::GpuOps(Device& device, const ModelConfig& config, const GpuOptions& options)
    : device_(device),
      config_(config),
      options_(options),
      mma_(options.tensor_cores == GpuOptions::TensorCores::kEmulated ||
           (options.tensor_cores == GpuOptions::TensorCores::kWhereFound && device.info().kind == DeviceKind::kCuda)),
      pool_(std::make_shared<BufferPool>(device)) {
  check_sizes(config);
}

GpuOps::~GpuOps() {
  device_.wait(device_.submit());
}

/// In place where the device can read it there, else a copy.
std::shared_ptr<Buffer> GpuOps::upload(std::span<const std::byte> bytes) {
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % kAlignment == 0)
    return waiting_buffer(device_, device_.map(bytes));
  std::shared_ptr<Buffer> buffer = waiting_buffer(device_, device_.allocate(bytes.size()));
  device_.write(*buffer, 0, bytes);
  return buffer;
}

Matrix GpuOps::load_matrix(const QuantizedMatrix& m) {
  check_matrix(m);
  Matrix matrix;
  matrix.owner = m.owner;
  matrix.codes = upload(bytes_of(m, 0));
  matrix.scales = upload(bytes_of(m, 1));
  matrix.biases = upload(bytes_of(m, 2));
  matrix.out = m.out;
  matrix.in = m.in;
  matrix.bits = m.bits;
  return matrix;
}

Weight GpuOps::load_linear(std::span<const QuantizedMatrix> parts) {
  LILY_CHECK(!parts.empty());
  auto storage = std::make_shared<MatrixStorage>();
  Matrix& matrix = storage->matrix;
  if (parts.size() == 1) {
    matrix = load_matrix(parts[0]);
  } else {
    std::shared_ptr<Buffer>* buffers[] = {&matrix.codes, &matrix.scales, &matrix.biases};
    for (int which = 0; which < 3; ++which) {
      std::size_t bytes = 0;
      for (const QuantizedMatrix& part : parts) bytes += bytes_of(part, which).size();
      *buffers[which] = waiting_buffer(device_, device_.allocate(bytes));
      std::size_t offset = 0;
      for (const QuantizedMatrix& part : parts) {
        check_matrix(part);
        LILY_CHECK(part.in == parts[0].in && part.bits == parts[0].bits && part.experts == 1);
        device_.write(**buffers[which], offset, bytes_of(part, which));
        offset += bytes_of(part, which).size();
      }
    }
    matrix.in = parts[0].in;
    matrix.bits = parts[0].bits;
    for (const QuantizedMatrix& part : parts) matrix.out += part.out;
  }
  return {storage, matrix.out, matrix.in};
}

std::shared_ptr<const Storage> GpuOps::load_experts(const MlpMatrices& routed, const MlpMatrices& shared) {
  auto experts = std::make_shared<Experts>();
  for (const QuantizedMatrix* m :
       {&routed.gate_proj, &routed.up_proj, &routed.down_proj, &shared.gate_proj, &shared.up_proj, &shared.down_proj}) {
    if (m->bits != 4) throw Error(fmt::format("the GPU has no kernel for experts of {} bits, expected 4", m->bits));
  }
  experts->gate = load_matrix(routed.gate_proj);
  experts->up = load_matrix(routed.up_proj);
  experts->down = load_matrix(routed.down_proj);
  experts->shared_gate = load_matrix(shared.gate_proj);
  experts->shared_up = load_matrix(shared.up_proj);
  experts->shared_down = load_matrix(shared.down_proj);
  experts->count = routed.gate_proj.experts;
  return experts;
}

Vector GpuOps::load_vector(std::span<const float> values) {
  auto vector = std::make_shared<Floats>();
  vector->values = waiting_buffer(device_, device_.allocate(values.size_bytes()));
  device_.write(*vector->values, 0, std::as_bytes(values));
  return {std::move(vector), static_cast<std::int64_t>(values.size())};
}

std::unique_ptr<SequenceState> GpuOps::new_state(std::int64_t capacity) {
  if (capacity > turns_positions_) {
    const std::vector<float> table = rotary_table(config_, capacity);
    turns_ = waiting_buffer(device_, device_.allocate(table.size() * sizeof(float)));
    device_.write(*turns_, 0, std::as_bytes(std::span(table)));
    turns_positions_ = capacity;
  }
  return std::make_unique<State>(device_, config_, capacity, turns_, options_.coalesced_cache);
}

Tensor GpuOps::tensor(std::int64_t rows, std::int64_t cols) {
  return {std::make_shared<Activations>(), rows, cols};
}

Activations& GpuOps::activations(const Tensor& tensor) {
  return static_cast<Activations&>(*tensor.storage);
}

void GpuOps::give_memory(Tensor& tensor, Format format) {
  Activations& a = activations(tensor);
  const auto values = static_cast<std::size_t>(tensor.rows * tensor.cols);
  a.gates = nullptr;
  a.operand_order = false;
  a.norm = nullptr;
  if (a.buffer != nullptr && a.format == format) return;
  a.buffer = pool_->take(values * (format == Format::kFloat32 ? 4 : 2));
  a.format = format;
}

View<float> GpuOps::floats(const Tensor& tensor) const {
  const Activations& a = activations(tensor);
  LILY_CHECK(a.buffer != nullptr && a.format == Format::kFloat32);
  return a.buffer->view<float>().part(0, static_cast<std::size_t>(tensor.rows * tensor.cols));
}

View<float> GpuOps::write_floats(Tensor& tensor) {
  give_memory(tensor, Format::kFloat32);
  return floats(tensor);
}

void GpuOps::read(const Tensor& tensor, std::span<float> out) {
  const Activations& a = activations(tensor);
  LILY_CHECK(a.buffer != nullptr && a.gates == nullptr &&
             out.size() == static_cast<std::size_t>(tensor.rows * tensor.cols));
  if (a.format == Format::kFloat32) {
    device_.read(*a.buffer, 0, std::as_writable_bytes(out));
    return;
  }
  std::vector<BFloat16> values(out.size());
  device_.read(*a.buffer, 0, std::as_writable_bytes(std::span(values)));
  constexpr std::size_t kPlace[] = {0, 2, 4, 6, 1, 3, 5, 7};
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<float>(values[a.operand_order ? i / 8 * 8 + kPlace[i % 8] : i]);
  }
}

}  // namespace gpu
}  // namespace lily
