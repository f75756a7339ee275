// A checkpoint on a GPU against the CPU in float32: logits after prompts of several lengths and after tokens decoded
// one by one behind them; and the GPU against itself, where every bit must be the same.
//
//   compare_logits CHECKPOINT [cuda|metal|emulated] [--reference FILE] [--portable] [--by-token] [length ...]
//   compare_logits CHECKPOINT cpu --reference FILE length ...
//
// --portable: without the kernels for CUDA's tensor cores. --by-token: prompts of any length are also taken token by
// token, where activations are float32; else short ones are.
//
// The CPU takes half an hour for a long prompt: the second form writes its logits into FILE, the first reads from there
// what it finds, and computes the rest.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <string>

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
constexpr std::int64_t kShort = 512;  // prompts that are also taken token by token

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

/// How many tokens are more likely than `token`, and one.
std::ptrdiff_t place_of(std::span<const float> logits, std::size_t token) {
  return 1 + std::count_if(logits.begin(), logits.end(), [&](float value) { return value > logits[token]; });
}

double log_sum_exp(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float value : logits) sum += std::exp(value - top);
  return top + std::log(sum);
}

// A position passes with a best token among the CPU's first five and at most this divergence: in 40 layers of random
// weights bf16 activations come to half of it.
constexpr std::ptrdiff_t kFirst = 5;
constexpr double kDivergence = 0.2;

/// False when a position does not pass.
bool compare(const char* what, std::int64_t length, const Logits& found, const Logits& expected) {
  bool passed = true;
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
        "{:14} prompt {:6} + {}: relative error {:.5f}, worst {:.4f} of {:.2f}, KL {:.2e}, its best token is the CPU's "
        "number {}, the CPU's its number {}\n",
        what, length, i, std::sqrt(error / size), worst, *std::max_element(b.begin(), b.end()), divergence,
        place_of(b, best(a)), place_of(a, best(b)));
    passed &= divergence <= kDivergence && place_of(b, best(a)) <= kFirst;
  }
  if (!passed) fmt::print("{} prompt {}: NOT AS GOOD AS ROUNDING ALLOWS\n", what, length);
  std::fflush(stdout);
  return passed;
}

bool same_bits(const Logits& a, const Logits& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0) return false;
  return true;
}

// The CPU's logits by the prompt's length. In the file: length, rows, columns (int64), then the rows (float32).
using References = std::map<std::int64_t, Logits>;

References read_references(const std::string& path) {
  References references;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(fmt::format("{}: cannot be read", path), "write it with: compare_logits CHECKPOINT cpu");
  for (std::array<std::int64_t, 3> head; file.read(reinterpret_cast<char*>(head.data()), sizeof(head));) {
    Logits& logits = references[head[0]];
    logits.assign(static_cast<std::size_t>(head[1]), std::vector<float>(static_cast<std::size_t>(head[2])));
    for (auto& row : logits)
      file.read(reinterpret_cast<char*>(row.data()), static_cast<std::streamsize>(row.size() * sizeof(float)));
    if (!file) throw Error(fmt::format("{}: ends within the logits of {} tokens", path, head[0]), "write it again");
  }
  return references;
}

void write_reference(std::ofstream& file, std::int64_t length, const Logits& logits) {
  const std::array<std::int64_t, 3> head = {length, std::ssize(logits), std::ssize(logits.front())};
  file.write(reinterpret_cast<const char*>(head.data()), sizeof(head));
  for (const auto& row : logits)
    file.write(reinterpret_cast<const char*>(row.data()), static_cast<std::streamsize>(row.size() * sizeof(float)));
  if (!file.flush()) throw Error("compare_logits: the reference cannot be written", "look for space on the disk");
}

}  // namespace

int run_benchmark(int argc, char** argv) {
  if (argc < 2) throw Error("compare_logits: no checkpoint", "give its directory");
  const Checkpoint checkpoint = Checkpoint::open(argv[1]);
  const std::string kind = argc > 2 ? argv[2] : "auto";
  std::string reference;
  GpuOptions options;
  std::int64_t longest_by_token = kShort;
  std::vector<std::int64_t> lengths;
  for (int i = 3; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--reference" && i + 1 < argc)
      reference = argv[++i];
    else if (argument == "--portable")
      options.tensor_cores = GpuOptions::TensorCores::kNever;
    else if (argument == "--by-token")
      longest_by_token = std::numeric_limits<std::int64_t>::max();
    else
      lengths.push_back(std::atoll(argv[i]));
  }
  if (lengths.empty()) lengths = {64, 512};
  const CpuOptions exact{.threads = 0, .target = "", .activations = Activations::kFloat32};
  if (kind == "cpu") {
    std::ofstream file(reference, std::ios::binary);
    if (!file) throw Error("compare_logits: nowhere to write the CPU's logits", "give --reference FILE");
    const auto ops = make_cpu_ops(checkpoint.config(), exact);
    const Model model = load_model(checkpoint, *ops);
    for (const std::int64_t length : lengths) write_reference(file, length, run(*ops, model, length, 512));
    return 0;
  }
  const auto device = require_gpu("compare_logits", kind);
  const References references = reference.empty() ? References{} : read_references(reference);
  std::vector<Logits> on_gpu, by_token(lengths.size());
  {
    const auto ops = make_gpu_ops(*device, checkpoint.config(), options);
    const Model model = load_model(checkpoint, *ops);
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      const std::int64_t length = lengths[i];
      on_gpu.push_back(run(*ops, model, length, 4096));
      fmt::print("{}, twice: {}\n", length,
                 same_bits(on_gpu.back(), run(*ops, model, length, 4096)) ? "the same bits" : "DIFFERENT BITS");
      if (length <= longest_by_token) by_token[i] = run(*ops, model, length, 1);
    }
  }
  std::unique_ptr<Ops> ops;
  Model model;
  bool passed = true;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const auto known = references.find(lengths[i]);
    if (known == references.end() && ops == nullptr) {
      ops = make_cpu_ops(checkpoint.config(), exact);
      model = load_model(checkpoint, *ops);
    }
    const Logits expected = known != references.end() ? known->second : run(*ops, model, lengths[i], 512);
    passed &= compare("prefill", lengths[i], on_gpu[i], expected);
    passed &= compare("token by token", lengths[i], by_token[i], expected);
  }
  return passed ? 0 : 1;
}

}  // namespace lily
