#include "benchmark/trace.h"

#include <algorithm>
#include <vector>

#include "benchmark/costs.h"
#include "device/emulated/emulated_device.h"
#include "ops/gpu/synthetic.h"
#include "session/session.h"

namespace lily {
namespace {

constexpr std::pair<LaunchPath, const char*> kPaths[] = {{LaunchPath::kSimdgroupMatrices, "simdgroup matrices"},
                                                         {LaunchPath::kTensorOperations, "tensor operations"},
                                                         {LaunchPath::kCudaTensorCores, "CUDA tensor cores"}};

const char* name_of(LaunchPath path) {
  return std::find_if(std::begin(kPaths), std::end(kPaths), [&](const auto& known) { return known.first == path; })
      ->second;
}

/// Through a session, as speed is measured; the first time the cache grows, which costs launches of its own.
Counters count_prompt(Device& device, Ops& ops, const Model& model, std::int64_t length, std::int64_t chunk) {
  const std::vector<std::int32_t> prompt(static_cast<std::size_t>(length), 1);
  Session session(model, ops,
                  {.capacity = length + 1, .prefill_chunk = chunk, .snapshot_bytes = 0, .snapshot_interval = 0});
  session.sync(prompt);
  session.reset();
  device.wait(device.submit());
  const Counters before = device.counters();
  session.sync(prompt);
  device.wait(device.submit());
  return device.counters() - before;
}

Counters count_reply(Device& device, Ops& ops, const Model& model, SequenceState& state, std::int64_t position,
                     std::int64_t tokens) {
  constexpr std::int64_t kFirst = 0;
  const auto loop = ops.decode_loop(state, [&](std::span<const std::int32_t> ids, Batch batch) {
    return forward(ops, model, ids, batch, std::span(&kFirst, 1));
  });
  SamplingParams sampling;
  const std::int32_t token = 1;
  loop->start({.token = token,
               .position = position,
               .vocab = static_cast<std::int32_t>(model.config.vocab_size),
               .sampling = &sampling,
               .generated = std::span(&token, 1),
               .stops = {},
               .uniform = {}});
  const Counters before = device.counters();
  loop->submit();
  const auto times = static_cast<std::uint64_t>(tokens);
  const Counters one = device.counters() - before;  // every token replays the same step
  return {.dispatches = times * one.dispatches, .stages = times * one.stages, .weight_bytes = times * one.weight_bytes};
}

}  // namespace

LaunchPath path_of(const DeviceInfo& info) {
  if (info.kind == DeviceKind::kCuda) return LaunchPath::kCudaTensorCores;
  return info.tensor_ops ? LaunchPath::kTensorOperations : LaunchPath::kSimdgroupMatrices;
}

LaunchCount count_launches(const ModelConfig& config, LaunchPath path, std::int64_t length, std::int64_t chunk,
                           std::int64_t tokens) {
  using TensorCores = GpuOptions::TensorCores;
  const auto device = make_emulated_device({.only_counts = true});
  GpuOptions options;
  options.tensor_cores = path == LaunchPath::kCudaTensorCores ? TensorCores::kEmulated : TensorCores::kNever;
  const auto ops = make_gpu_ops(*device, config, options);
  const Model model = make_synthetic_model(*device, *ops, config);
  const auto state = ops->new_state(length + tokens + 1);
  fill_cache(*device, config, *state, length + tokens + 1);  // grows here
  state->reset();
  device->wait(device->submit());
  LaunchCount count{name_of(path), {}, {}};
  count.prefill = count_prompt(*device, *ops, model, length, chunk);
  count.decode = count_reply(*device, *ops, model, *state, length, tokens);
  return count;
}

FullShapeTrace trace_full_shape() {
  const ModelConfig config = full_shape();
  FullShapeTrace trace;
  trace.chunk_rows = make_gpu_ops(*make_emulated_device({.only_counts = true}), config)->prefill_chunk();
  for (const auto& [path, name] : kPaths)
    trace.paths.push_back(count_launches(config, path, trace.chunk_rows, trace.chunk_rows, 1));
  trace.least_weight_bytes = active_matrix_bytes(config);
  return trace;
}

}  // namespace lily
