// Prefill speed at the full shape with made-up weights.
//
//   prefill_bench [cuda|metal|emulated] [chunk] [length ...]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "benchmark.h"
#include "ops/gpu/synthetic.h"

namespace lily {
namespace {

using Clock = std::chrono::steady_clock;

double run_prompt(Device& device, Ops& ops, const Model& model, SequenceState& state,
                  std::span<const std::int32_t> tokens, std::int64_t chunk) {
  state.reset();
  device.wait(device.submit());
  const auto start = Clock::now();
  const auto length = static_cast<std::int64_t>(tokens.size());
  std::vector<float> logits(static_cast<std::size_t>(model.config.vocab_size));
  for (std::int64_t done = 0; done < length;) {
    const std::int64_t rows = std::min(chunk, length - done), last = rows - 1;
    const Segment segment{&state, 0, rows, done};
    const bool ends = done + rows == length;
    const Tensor out =
        forward(ops, model, tokens.subspan(static_cast<std::size_t>(done), static_cast<std::size_t>(rows)),
                std::span(&segment, 1), std::span(&last, ends ? 1 : 0));
    if (ends) ops.read(out, logits);
    done += rows;
  }
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

int run_benchmark(int argc, char** argv) {
  const auto device = require_gpu("prefill_bench", argc > 1 ? argv[1] : "auto");
  const std::int64_t chunk = argc > 2 ? std::atoll(argv[2]) : 4096;
  std::vector<std::int64_t> lengths;
  for (int i = 3; i < argc; ++i) lengths.push_back(std::atoll(argv[i]));
  if (lengths.empty()) lengths = {4096};
  const ModelConfig config = full_shape();
  const auto ops = make_gpu_ops(*device, config);
  const Model model = make_synthetic_model(*device, *ops, config);
  const std::int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  const auto state = ops->new_state(longest + 1);
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < longest; ++i) tokens.push_back(static_cast<std::int32_t>(i * 7919 % 248000));
  fill_cache(*device, config, *state, longest);
  const std::size_t before = device->memory_in_use();
  for (const std::int64_t length : lengths) {
    const std::span<const std::int32_t> prompt = std::span(tokens).first(static_cast<std::size_t>(length));
    std::vector<double> seconds;
    for (int round = 0; round < (length > 40000 ? 2 : 4); ++round)
      seconds.push_back(run_prompt(*device, *ops, model, *state, prompt, chunk));
    std::sort(seconds.begin() + 1, seconds.end());  // the first warms up
    const double median = seconds[1 + (seconds.size() - 1) / 2];
    fmt::print("prefill {:6} chunk {:5}  {:9.2f} ms  {:8.0f} tok/s  scratch {:.2f} GiB\n", length, chunk, median * 1e3,
               double(length) / median, double(device->memory_in_use() - before) / (1 << 30));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace lily
