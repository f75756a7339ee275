// Every op of the CPU backend at the sizes of Qwen3.6-35B-A3B, one layer each, weights larger than the caches.
//
//     cpu_ops_bench [--benchmark_filter=mixture]
//
// GB/s counts what the op must read and write in memory (weights, state, KV cache), Gop/s the multiplications and
// additions of its matrix products. "% read" is GB/s against what the same threads read from plain memory here and now,
// "% dot" the dot products of bytes (int16 activations take two of them for one) against a loop of nothing else; absent
// where an op is mostly float32 arithmetic.
// activations: 0 is float32, 1 int16, 2 int8; threads: 0 is all usable cores. With one thread, times are the thread's
// CPU time, also those of the limits, so that a busy machine does not disturb them much; with several threads they are
// the wall's.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "benchmark/machine.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/memory.h"
#include "ops/op_cases.h"
#include "support/thread_pool.h"

namespace lily {
namespace {

using op_cases::Random;

ModelConfig bench_config() {
  ModelConfig config = op_cases::full_shape();
  config.num_experts = 64;  // of 256: 113 MB, enough to miss the caches
  return config;
}

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

ClockSeconds clock_of(int threads) {
  return threads == 1 ? thread_seconds : wall_seconds;
}

// Bytes per second.
double read_limit(int threads) {
  static std::map<int, double> limits;
  if (!limits.contains(threads)) limits[threads] = measured_read_bandwidth(threads, clock_of(threads));
  return limits[threads];
}

// Multiplications and additions of bytes per second; 0 where the CPU has no vectors.
double dot_limit(int threads) {
  static std::map<int, double> limits;
  if (!limits.contains(threads)) limits[threads] = measured_dot_rate(threads, clock_of(threads)).value_or(0);
  return limits[threads];
}

struct Bench {
  explicit Bench(const benchmark::State& state)
      : config(bench_config()),
        threads(static_cast<int>(state.range(1)) > 0 ? static_cast<int>(state.range(1)) : usable_cores()) {
    const std::string names[] = {"float32", "int16", "int8"};
    const std::string& name = names[state.range(2)];
    dots_of_product = name == "int16" ? 2 : name == "int8" ? 1 : 0;
    ops = make_cpu_ops(config,
                       {.threads = threads, .target = "", .activations = activations_named(name), .profile = &profile});
  }

  /// The loop of a benchmark.
  void time(benchmark::State& state, const std::function<void()>& body) const {
    const ClockSeconds now = clock_of(threads);
    for (auto _ : state) {
      const double begin = now();
      body();
      state.SetIterationTime(now() - begin);
    }
  }

  Tensor input(std::int64_t rows, std::int64_t cols) {
    Tensor tensor = ops->tensor(rows, cols);
    const std::vector<float> values = op_cases::normal_values(random, cols);
    for (std::int64_t row = 0; row < rows; ++row) {
      std::rotate_copy(values.begin(), values.begin() + row % cols, values.end(), cpu::values(tensor) + row * cols);
    }
    return tensor;
  }

  // `products`: the operations are products of 4-bit codes with activations.
  void report(benchmark::State& state, bool products) {
    double bytes = 0;
    double operations = 0;
    for (const Profile::Entry& entry : profile.entries()) {
      bytes += entry.bytes;
      operations += entry.operations;
    }
    using benchmark::Counter;
    state.counters["GB/s"] = Counter(bytes / 1e9, Counter::kIsRate);
    state.counters["Gop/s"] = Counter(operations / 1e9, Counter::kIsRate);
    state.counters["% read"] = Counter(bytes / read_limit(threads) * 100, Counter::kIsRate);
    const double limit = products ? dot_limit(threads) : 0;
    if (dots_of_product > 0 && limit > 0) {
      state.counters["% dot"] = Counter(dots_of_product * operations / limit * 100, Counter::kIsRate);
    }
  }

  ModelConfig config;
  int threads;
  int dots_of_product = 0;
  Profile profile;
  std::unique_ptr<Ops> ops;
  Random random{1};
};

// As many matrices as exceed the caches, used in turn.
class Matrices {
 public:
  Matrices(Bench& bench, std::int64_t out, std::int64_t in) {
    const std::int64_t count = std::max<std::int64_t>(1, (std::int64_t{128} << 20) / (out * in * 9 / 16));
    for (std::int64_t i = 0; i < count; ++i) {
      matrices_.push_back(std::make_unique<op_cases::RandomMatrix>(bench.random, 1, out, in));
      const QuantizedMatrix parts[] = {matrices_.back()->view()};
      weights_.push_back(bench.ops->load_linear(parts));
    }
  }
  const Weight& next() { return weights_[next_++ % weights_.size()]; }

 private:
  std::vector<std::unique_ptr<op_cases::RandomMatrix>> matrices_;
  std::vector<Weight> weights_;
  std::size_t next_ = 0;
};

void embed(benchmark::State& state) {
  Bench bench(state);
  const op_cases::RandomMatrix matrix(bench.random, 1, 248320, 2048);
  const Weight table = bench.ops->load_table(matrix.view());
  Tensor x = bench.ops->tensor(state.range(0), 2048);
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(state.range(0)));
  bench.time(state, [&] {
    for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(bench.random() % 248320U);
    bench.ops->embed(table, tokens, x);
  });
  bench.report(state, false);
}

void run_project(benchmark::State& state, std::int64_t out, std::int64_t in) {
  Bench bench(state);
  Matrices matrices(bench, out, in);
  const Tensor x = bench.input(state.range(0), in);
  const Vector norm = bench.ops->load_vector(std::vector<float>(static_cast<std::size_t>(in), 1.0F));
  Tensor y = bench.ops->tensor(state.range(0), out);
  bench.time(state, [&] { bench.ops->project(x, norm, matrices.next(), y); });
  bench.report(state, true);
}

void in_proj_gated_delta(benchmark::State& state) {
  run_project(state, bench_config().linear_rows(), 2048);
}
void in_proj_attention(benchmark::State& state) {
  run_project(state, bench_config().attention_rows(), 2048);
}

void out_proj(benchmark::State& state) {
  Bench bench(state);
  Matrices matrices(bench, 2048, 4096);
  const Tensor in = bench.input(state.range(0), 4096);
  Tensor x = bench.input(state.range(0), 2048);
  bench.time(state, [&] { bench.ops->project_add(in, matrices.next(), x); });
  bench.report(state, true);
}

void lm_head(benchmark::State& state) {
  Bench bench(state);
  Matrices matrices(bench, 248320, 2048);
  const Tensor x = bench.input(1, 2048);
  const Vector norm = bench.ops->load_vector(std::vector<float>(2048, 1.0F));
  Tensor logits = bench.ops->tensor(1, 248320);
  const std::int64_t row = 0;
  bench.time(state, [&] { bench.ops->lm_head(x, norm, matrices.next(), std::span(&row, 1), logits); });
  bench.report(state, true);
}

void gated_delta(benchmark::State& state) {
  Bench bench(state);
  const std::int64_t rows = state.range(0);
  const op_cases::GatedDeltaCase layer(bench.random, bench.config);
  const GatedDeltaWeights weights = layer.load(*bench.ops);
  std::vector<std::unique_ptr<SequenceState>> states;  // three layers of 2 MiB each: more than the caches
  for (int i = 0; i < 24; ++i) states.push_back(bench.ops->new_state(1));
  const Tensor projected = bench.input(rows, bench.config.linear_rows());
  Tensor out = bench.ops->tensor(rows, bench.config.value_rows());
  std::size_t next = 0;
  bench.time(state, [&] {
    const Segment segment{states[next / 3 % states.size()].get(), 0, rows, 0};
    bench.ops->gated_delta(projected, weights, static_cast<std::int64_t>(next++ % 3), std::span(&segment, 1), out);
  });
  bench.report(state, false);
}

void attention_at(benchmark::State& state, std::int64_t position) {
  Bench bench(state);
  const std::int64_t rows = state.range(0);
  const op_cases::AttentionCase layer(bench.random, bench.config);
  const AttentionWeights weights = layer.load(*bench.ops);
  std::vector<std::unique_ptr<SequenceState>> states;  // KV caches of several layers
  const std::size_t count = rows == 1 ? 8 : 1;
  const Tensor projected = bench.input(std::max<std::int64_t>(rows, 512), bench.config.attention_rows());
  const std::int64_t width = bench.config.num_attention_heads * bench.config.head_dim;
  Tensor out = bench.ops->tensor(projected.rows, width);
  for (std::size_t i = 0; i < count; ++i) {
    states.push_back(bench.ops->new_state(position + rows));
    for (std::int64_t at = 0; at < position; at += 512) {
      const Segment fill{states.back().get(), 0, 512, at};
      bench.ops->attention(projected, weights, 0, std::span(&fill, 1), out);
    }
  }
  bench.profile.clear();
  std::size_t next = 0;
  Tensor view = projected;
  view.rows = out.rows = rows;
  bench.time(state, [&] {
    const Segment segment{states[next++ % count].get(), 0, rows, position};
    bench.ops->attention(view, weights, 0, std::span(&segment, 1), out);
  });
  bench.report(state, false);
}

void attention(benchmark::State& state) {
  attention_at(state, 0);
}
void attention_after_4096(benchmark::State& state) {
  attention_at(state, 4096);
}

void mixture_of_experts(benchmark::State& state) {
  Bench bench(state);
  const op_cases::MoeCase layer(bench.random, bench.config);
  const MoeWeights weights = layer.load(*bench.ops);
  std::vector<Tensor> inputs;
  Tensor x = bench.ops->tensor(state.range(0), 2048);
  for (int i = 0; i < 32; ++i) {
    Tensor one = bench.ops->tensor(state.range(0), 2048);
    const std::vector<float> values = op_cases::normal_values(bench.random, state.range(0) * 2048);
    std::copy(values.begin(), values.end(), cpu::values(one));
    inputs.push_back(one);
  }
  std::size_t next = 0;
  bench.time(state, [&] {
    std::copy_n(cpu::values(inputs[next++ % inputs.size()]), state.range(0) * 2048, cpu::values(x));
    bench.ops->mixture_of_experts(weights, x);
  });
  bench.report(state, true);
}

void stage(benchmark::State& state) {
  ThreadPool pool(static_cast<int>(state.range(0)));
  for (auto _ : state) pool.run(2 * state.range(0), [](std::int64_t, int) noexcept {});
}

// {rows, threads (0: all cores), activations}
void decode_arguments(benchmark::internal::Benchmark* bench) {
  for (const int threads : {1, 0}) {
    for (const int activations : {1, 2}) bench->Args({1, threads, activations});
  }
}
void prefill_arguments(benchmark::internal::Benchmark* bench) {
  for (const int rows : {32, 512}) {
    for (const int activations : {1, 2}) {
      for (const int threads : {1, 0}) bench->Args({rows, threads, activations});
    }
  }
}
void all_arguments(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"rows", "threads", "activations"})->UseManualTime()->Unit(benchmark::kMicrosecond);
  decode_arguments(bench);
  prefill_arguments(bench);
}
void state_arguments(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"rows", "threads", "activations"})->UseManualTime()->Unit(benchmark::kMicrosecond);
  for (const int rows : {1, 512}) {
    for (const int threads : {1, 0}) bench->Args({rows, threads, 1});
  }
}
void head_arguments(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"rows", "threads", "activations"})->UseManualTime()->Unit(benchmark::kMicrosecond);
  decode_arguments(bench);
}

BENCHMARK(embed)->Apply(state_arguments);
BENCHMARK(in_proj_gated_delta)->Apply(all_arguments);
BENCHMARK(in_proj_attention)->Apply(all_arguments);
BENCHMARK(out_proj)->Apply(all_arguments);
BENCHMARK(mixture_of_experts)->Apply(all_arguments);
BENCHMARK(gated_delta)->Apply(state_arguments);
BENCHMARK(attention)->Apply(state_arguments);
BENCHMARK(attention_after_4096)->Apply(state_arguments);
BENCHMARK(lm_head)->Apply(head_arguments);
BENCHMARK(stage)->ArgName("threads")->Arg(2)->UseRealTime();

}  // namespace
}  // namespace lily

BENCHMARK_MAIN();
