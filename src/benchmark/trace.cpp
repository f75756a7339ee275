#include "benchmark/trace.h"

#include <vector>

#include "benchmark/costs.h"
#include "device/emulated/emulated_device.h"
#include "ops/gpu/synthetic.h"

namespace lily {
FullShapeTrace trace_full_shape() {
  constexpr std::int64_t kFirst = 0;
  const ModelConfig config = full_shape();
  const auto device = make_emulated_device({.only_counts = true});
  const auto ops = make_gpu_ops(*device, config);
  const Model model = make_synthetic_model(*device, *ops, config);
  FullShapeTrace trace{.token = {}, .chunk = {}, .chunk_rows = ops->prefill_chunk()};
  trace.least_weight_bytes = active_matrix_bytes(config);
  const auto state = ops->new_state(trace.chunk_rows + 2);
  state->reset();
  device->wait(device->submit());

  Counters before = device->counters();
  const std::vector<std::int32_t> prompt(static_cast<std::size_t>(trace.chunk_rows), 1);
  const Segment segment{state.get(), 0, trace.chunk_rows, 0};
  const std::int64_t last = trace.chunk_rows - 1;
  forward(*ops, model, prompt, std::span(&segment, 1), std::span(&last, 1));
  device->wait(device->submit());
  trace.chunk = device->counters() - before;

  const auto loop = ops->decode_loop(*state, [&](std::span<const std::int32_t> tokens, Batch batch) {
    return forward(*ops, model, tokens, batch, std::span(&kFirst, 1));
  });
  SamplingParams sampling;
  const std::int32_t token = 1;
  loop->start({.token = token,
               .position = trace.chunk_rows,
               .vocab = static_cast<std::int32_t>(config.vocab_size),
               .sampling = &sampling,
               .generated = std::span(&token, 1),
               .stops = {},
               .uniform = {}});
  loop->submit();  // the first one may have to enlarge the KV cache
  before = device->counters();
  loop->submit();
  trace.token = device->counters() - before;
  return trace;
}

}  // namespace lily
