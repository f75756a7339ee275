#include "ops/cpu/cpu_ops.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "ops/cpu/ops_impl.h"
#include "support/error.h"

namespace lily {
namespace cpu {
namespace {

// Bytes of one item when matrices are copied.
constexpr std::size_t kCopyBytes = std::size_t{1} << 20;
// Smaller matrices would fill less than a huge page.
constexpr std::int64_t kCopiedFrom = std::int64_t{2} << 20;

struct Span {
  const std::byte* from;
  std::byte* to;
  std::size_t bytes;
};

// Takes the mapped pages that lie whole inside of the span out of this process's memory; the system's cache keeps them.
void forget_mapped(const std::byte* data, std::size_t bytes) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(data) + page - 1) / page * page;
  const auto end = (reinterpret_cast<std::uintptr_t>(data) + bytes) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace

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

// A file's pages are small where its file system has no larger ones, and each thread then reads at about 60% of the
// speed (17 instead of 29 GB/s on a virtual Zen 4). What every token reads is worth a copy; the experts, nine tenths of
// the bytes, stay where they are, shared and free to go when memory is short.
Pages CpuOps::move_to_huge_pages(std::vector<QuantRows>& rows) {
  std::size_t total = 0;
  std::vector<Span> spans;
  const auto add = [&](const void* from, std::int64_t bytes) {
    const auto size = static_cast<std::size_t>(bytes);
    for (std::size_t at = 0; at < size; at += kCopyBytes) {
      spans.push_back({static_cast<const std::byte*>(from) + at, nullptr, std::min(kCopyBytes, size - at)});
    }
  };
  for (const QuantRows& part : rows) {
    add(part.codes, part.out * part.row_bytes());
    add(part.scales, part.out * part.groups() * 2);
    add(part.biases, part.out * part.groups() * 2);
  }
  const auto rounded_up = [](std::size_t bytes) { return (bytes + 63) / 64 * 64; };
  for (const Span& span : spans) total += rounded_up(span.bytes);
  Pages copy(total);
  std::byte* to = copy.data();
  for (Span& span : spans) {
    span.to = to;
    to += rounded_up(span.bytes);
  }
  pool_.run(static_cast<std::int64_t>(spans.size()), [&](std::int64_t item, int) noexcept {
    const Span& span = spans[static_cast<std::size_t>(item)];
    std::memcpy(span.to, span.from, span.bytes);
    forget_mapped(span.from, span.bytes);
  });
  to = copy.data();
  const auto take = [&](std::int64_t bytes) {
    std::byte* at = to;
    to += rounded_up(static_cast<std::size_t>(bytes));
    return at;
  };
  for (QuantRows& part : rows) {
    part.codes = reinterpret_cast<const std::uint8_t*>(take(part.out * part.row_bytes()));
    part.scales = reinterpret_cast<const BFloat16*>(take(part.out * part.groups() * 2));
    part.biases = reinterpret_cast<const BFloat16*>(take(part.out * part.groups() * 2));
  }
  return copy;
}

Weight CpuOps::load_linear(std::span<const QuantizedMatrix> parts) {
  LILY_CHECK(!parts.empty());
  Weight weight;
  weight.in = parts.front().in;
  std::vector<QuantRows> rows;
  std::int64_t bytes = 0;
  bool mapped = true;
  for (const QuantizedMatrix& part : parts) {
    LILY_CHECK(part.in == weight.in && part.experts == 1);
    rows.push_back(expert_rows(part, 0));
    weight.out += part.out;
    bytes += rows.back().out * rows.back().stored_row_bytes();
    mapped = mapped && part.mapped;
  }
  Pages copy;
  if (mapped && bytes >= kCopiedFrom) copy = move_to_huge_pages(rows);
  weight.storage = std::make_shared<MatrixStorage>(std::move(rows), std::move(copy));
  return weight;
}

Weight CpuOps::load_table(const QuantizedMatrix& table) {
  LILY_CHECK(table.experts == 1);
  return {std::make_shared<MatrixStorage>(std::vector<QuantRows>{expert_rows(table, 0)}), table.out, table.in};
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

namespace {

constexpr std::array<std::pair<Activations, const char*>, 3> kActivationNames = {
    {{Activations::kFloat32, "float32"}, {Activations::kInt16, "int16"}, {Activations::kInt8, "int8"}}};

const cpu::Kernels& kernels_of(const CpuOptions& options) {
  if (const cpu::Kernels* kernels = cpu::find_kernels(options.target)) return *kernels;
  throw Error(fmt::format("this CPU or build has no instruction set '{}'", options.target),
              fmt::format("It has: {}", fmt::join(cpu_targets(), ", ")));
}

}  // namespace

std::vector<std::string> cpu_targets() {
  return cpu::kernel_targets();
}

Activations activations_named(std::string_view name) {
  if (name.empty()) return Activations::kInt8;
  for (const auto& [activations, known] : kActivationNames) {
    if (name == known) return activations;
  }
  throw Error(fmt::format("there are no activations '{}'", name), "use float32, int16 or int8");
}

std::string cpu_arithmetic(const CpuOptions& options) {
  const auto* named = std::find_if(kActivationNames.begin(), kActivationNames.end(),
                                   [&](const auto& entry) { return entry.first == options.activations; });
  return fmt::format("{}-{}", named->second, options.target.empty() ? cpu_targets().front() : options.target);
}

std::int64_t cpu_prefill_chunk(const CpuOptions& options) {
  return cpu::prefill_chunk_of(kernels_of(options), options.activations);
}

std::unique_ptr<Ops> make_cpu_ops(const ModelConfig& config, const CpuOptions& options) {
  const int threads = options.threads > 0 ? options.threads : usable_cores();
  return std::make_unique<cpu::CpuOps>(config, kernels_of(options), threads, options);
}

}  // namespace lily
