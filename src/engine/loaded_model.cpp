#include "engine/loaded_model.h"

#include "engine/model_id.h"
#include "model/memory_forecast.h"
#include "ops/cpu/cpu_ops.h"
#include "support/error.h"

namespace lily {
namespace {

/// `gpu`, or null, the CPU: with "auto" also where the GPU has too little memory for the model.
std::unique_ptr<Device> choose_gpu(std::unique_ptr<Device> gpu, const ModelConfig& config, std::uint64_t text_bytes,
                                   const LoadOptions& options) {
  if (parse_device_kind(options.device) != DeviceKind::kAuto || gpu == nullptr) return gpu;
  const std::uint64_t needed = forecast_memory(config, text_bytes, options.context, kGpuMemory).total();
  if (needed <= gpu->info().memory_budget) return gpu;
  if (options.notice) {
    options.notice(fmt::format("{} can hold {:.1f} GB, the model with {} tokens needs {:.1f} GB: the CPU runs it",
                               gpu->info().name, static_cast<double>(gpu->info().memory_budget) / 1e9, options.context,
                               static_cast<double>(needed) / 1e9));
  }
  return nullptr;
}

CpuOptions cpu_options(const LoadOptions& options) {
  return {.threads = options.threads,
          .target = options.target,
          .activations = activations_named(options.activations),
          .profile = options.profile};
}

/// On `gpu`, or on the CPU if it is null.
std::unique_ptr<Ops> make_ops(Device* gpu, const ModelConfig& config, std::uint64_t text_bytes,
                              const LoadOptions& options) {
  if (gpu != nullptr) {
    require_memory(config, text_bytes, options.context, kGpuMemory, gpu->info().memory_budget);
    gpu->set_overlap(options.overlap_launches);
    return make_gpu_ops(*gpu, config, options.gpu);
  }
  const CpuOptions cpu = cpu_options(options);
  MemoryTraits traits = cpu.activations == Activations::kFloat32 ? kExactCpuMemory : kCpuMemory;
  traits.prefill_chunk = cpu_prefill_chunk(cpu);
  require_memory(config, text_bytes, options.context, traits);
  return make_cpu_ops(config, cpu);
}

}  // namespace

void check_model(const LoadOptions& options) {
  const Checkpoint checkpoint = Checkpoint::open(resolve_model(options.model));
  if (const std::int64_t positions = checkpoint.config().max_position_embeddings; options.context > positions) {
    throw Error(fmt::format("a context of {} tokens is more than the model's {} positions", options.context, positions),
                fmt::format("give a smaller one, e.g. --ctx {}", positions));
  }
}

LoadedModel::LoadedModel(const LoadOptions& options)
    : LoadedModel(options, make_device(parse_device_kind(options.device))) {}

LoadedModel::LoadedModel(const LoadOptions& options, std::unique_ptr<Device> device)
    : checkpoint_(Checkpoint::open(resolve_model(options.model))),
      tokenizer_(Tokenizer::open(checkpoint_.directory())),
      gpu_(choose_gpu(std::move(device), checkpoint_.config(), checkpoint_.text_bytes(), options)),
      ops_(make_ops(gpu_.get(), checkpoint_.config(), checkpoint_.text_bytes(), options)),
      model_(load_model(checkpoint_, *ops_, options.progress)),
      id_(model_id(checkpoint_)),
      arithmetic_(gpu_ ? "" : cpu_arithmetic(cpu_options(options))) {
  if (tokenizer_.size() > config().vocab_size) {
    throw_error("{}: the tokenizer has {} ids, the model only {}", checkpoint_.directory().string(), tokenizer_.size(),
                config().vocab_size);
  }
}

}  // namespace lily
