// A checkpoint on a GPU against the CPU in float32: logits after prompts of several lengths and after tokens decoded
// one by one behind them; and the GPU against itself, where every bit must be the same.
//
//   compare_logits CHECKPOINT [cuda|metal|emulated] [length ...]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "benchmark.h"
#include "checkpoint/checkpoint.h"
#include "device/device.h"
#include "model/model.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/gpu/gpu_ops.h"

namespace lily {
namespace {

using Clock = std::chrono::steady_clock;
using Logits = std::vector<std::vector<float>>;  // after the prompt, then after each decoded token

constexpr std::int64_t kDecoded = 8;
constexpr std::int64_t kShort = 512;  // prompts that are also taken token by token; they stand first

std::int32_t token_at(std::int64_t i, std::int64_t vocab) {
  return static_cast<std::int32_t>(i * 7919 % std::min<std::int64_t>(vocab, 248000));
}

Logits run(Ops& ops, const Model& model, std::int64_t length, std::int64_t chunk) {
  const auto state = ops.new_state(length + kDecoded);
  state->reset();
  Logits all;
  const auto start = Clock::now();
  for (std::int64_t done = 0; done < length + kDecoded;) {
    const std::int64_t rows = done < length ? std::min(chunk, length - done) : 1, last = rows - 1;
    const Segment segment{state.get(), 0, rows, done};
    std::vector<std::int32_t> tokens;
    for (std::int64_t i = 0; i < rows; ++i) tokens.push_back(token_at(done + i, model.config.vocab_size));
    const bool wanted = done + rows >= length;
    const Tensor out = forward(ops, model, tokens, std::span(&segment, 1), std::span(&last, wanted ? 1 : 0));
    done += rows;
    if (!wanted) continue;
    all.emplace_back(static_cast<std::size_t>(out.cols));
    ops.read(out, all.back());
  }
  fmt::print(stderr, "  {} tokens in {:.1f} s\n", length, std::chrono::duration<double>(Clock::now() - start).count());
  return all;
}

std::size_t best(std::span<const float> logits) {
  return static_cast<std::size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

double log_sum_exp(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float value : logits) sum += std::exp(value - top);
  return top + std::log(sum);
}

void compare(const char* what, std::int64_t length, const Logits& found, const Logits& expected) {
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::span<const float> a = found[i], b = expected[i];
    const double a_sum = log_sum_exp(a), b_sum = log_sum_exp(b);
    double worst = 0, error = 0, size = 0, divergence = 0;
    for (std::size_t t = 0; t < a.size(); ++t) {
      const double difference = double{a[t]} - double{b[t]};
      worst = std::max(worst, std::abs(difference));
      error += difference * difference;
      size += double{b[t]} * double{b[t]};
      divergence += std::exp(b[t] - b_sum) * ((b[t] - b_sum) - (a[t] - a_sum));
    }
    fmt::print(
        "{:14} prompt {:6} + {}: relative error {:.5f}, worst {:.4f} of {:.2f}, KL {:.2e}, same best token: {}\n", what,
        length, i, std::sqrt(error / size), worst, *std::max_element(b.begin(), b.end()), divergence,
        best(a) == best(b) ? "yes" : "no");
  }
  std::fflush(stdout);
}

bool same_bits(const Logits& a, const Logits& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0) return false;
  return true;
}

}  // namespace

int run_benchmark(int argc, char** argv) {
  if (argc < 2) throw Error("compare_logits: no checkpoint", "give its directory");
  const Checkpoint checkpoint = Checkpoint::open(argv[1]);
  const auto device = make_device(parse_device_kind(argc > 2 ? argv[2] : "auto"));
  if (device == nullptr) throw Error("compare_logits: no GPU", "give cuda, metal or emulated");
  std::vector<std::int64_t> lengths;
  for (int i = 3; i < argc; ++i) lengths.push_back(std::atoll(argv[i]));
  if (lengths.empty()) lengths = {64, 512};
  std::vector<Logits> on_gpu, by_token;
  {
    const auto ops = make_gpu_ops(*device, checkpoint.config());
    const Model model = load_model(checkpoint, *ops);
    for (const std::int64_t length : lengths) {
      on_gpu.push_back(run(*ops, model, length, 4096));
      fmt::print("{}, twice: {}\n", length,
                 same_bits(on_gpu.back(), run(*ops, model, length, 4096)) ? "the same bits" : "DIFFERENT BITS");
      if (length <= kShort) by_token.push_back(run(*ops, model, length, 1));
    }
  }
  const auto ops =
      make_cpu_ops(checkpoint.config(), {.threads = 0, .target = "", .activations = Activations::kFloat32});
  const Model model = load_model(checkpoint, *ops);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const Logits expected = run(*ops, model, lengths[i], 512);
    compare("prefill", lengths[i], on_gpu[i], expected);
    if (i < by_token.size()) compare("token by token", lengths[i], by_token[i], expected);
  }
  return 0;
}

}  // namespace lily
