// On the CPU a row gets the same bits whatever shares its batch: alone, with any number of others, in chunks of any
// size, with any number of threads. So a prompt read at once is the same as token by token, and requests that are
// served together get what they get alone. (Attention's test is in cpu_ops_test.)
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/kernel_tables.h"
#include "ops/cpu/memory.h"
#include "ops/cpu/ops_impl.h"
#include "ops/op_cases.h"

namespace lily {
namespace {

using op_cases::Random;

Tensor upload(Ops& ops, std::span<const float> values, std::int64_t cols) {
  Tensor tensor = ops.tensor(static_cast<std::int64_t>(values.size()) / cols, cols);
  std::copy(values.begin(), values.end(), cpu::values(tensor));
  return tensor;
}

// Runs an op over rows [begin, end) of its input and gives their results.
using OnRows = std::function<std::vector<float>(std::int64_t begin, std::int64_t end)>;
// Makes OnRows for a backend, with timelines that have no tokens.
using Prepare = std::function<OnRows(Ops& ops)>;

std::vector<float> in_chunks(const OnRows& op, std::int64_t rows, const std::function<std::int64_t()>& size) {
  std::vector<float> all;
  for (std::int64_t begin = 0; begin < rows;) {
    const std::int64_t end = std::min(rows, begin + size());
    const std::vector<float> part = op(begin, end);
    all.insert(all.end(), part.begin(), part.end());
    begin = end;
  }
  return all;
}

#ifdef LILY_TEST_EMULATED_AMX
constexpr const char* kEmulatedAmx = "avx512vnni and emulated AMX";
#endif

std::vector<std::string> targets() {
  std::vector<std::string> names = cpu_targets();
#ifdef LILY_TEST_EMULATED_AMX
  if (std::count(names.begin(), names.end(), "avx512vnni") > 0) names.emplace_back(kEmulatedAmx);
#endif
  return names;
}

std::unique_ptr<Ops> make_ops(const ModelConfig& config, const std::string& target, const std::string& mode,
                              int threads) {
  const CpuOptions options{.threads = threads, .target = target, .activations = activations_named(mode)};
#ifdef LILY_TEST_EMULATED_AMX
  if (target == kEmulatedAmx) {
    static const cpu::Kernels kernels = [] {
      cpu::Kernels all = *cpu::find_kernels("avx512vnni");
      cpu::fill_amx_kernels_emulated(all);
      return all;
    }();
    return std::make_unique<cpu::CpuOps>(config, kernels, threads, options);
  }
#endif
  return make_cpu_ops(config, options);
}

void expect_same_bits(const ModelConfig& config, const std::string& what, std::int64_t rows, const Prepare& prepare) {
  for (const std::string& target : targets()) {
    for (const std::string mode : {"float32", "int16", "int8"}) {
      std::vector<float> expected;
      for (const int threads : {1, 3}) {
        const auto ops = make_ops(config, target, mode, threads);
        Random random(7);
        const auto expect = [&](const std::string& how, const std::function<std::int64_t()>& size) {
          const std::vector<float> got = in_chunks(prepare(*ops), rows, size);
          if (expected.empty()) expected = got;
          ASSERT_EQ(got.size(), expected.size());
          EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
              << what << " " << how << ", " << target << " " << mode << ", threads " << threads;
        };
        expect("at once", [&] { return rows; });
        expect("one by one", [] { return std::int64_t{1}; });
        expect("in chunks", [&] { return 1 + static_cast<std::int64_t>(random() % 20U); });
      }
    }
  }
}

std::vector<ModelConfig> shapes() {
  return {op_cases::demo_shape(), op_cases::odd_shape(), op_cases::full_shape()};
}

// Of `values`, rows of `cols`.
std::span<const float> rows_of(const std::vector<float>& values, std::int64_t cols, std::int64_t begin,
                               std::int64_t end) {
  return std::span(values).subspan(static_cast<std::size_t>(begin * cols),
                                   static_cast<std::size_t>((end - begin) * cols));
}

std::int64_t row_count(const ModelConfig& config) {
#if defined(LILY_EMULATED) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return config.hidden_size > 512 ? 3 : 15;  // these take their time
#else
  return config.hidden_size > 512 ? 7 : 67;
#endif
}

TEST(CpuBatch, ProjectAddOfARow) {
  for (const ModelConfig& config : shapes()) {
    Random random(1);
    const std::int64_t in = config.value_rows(), out = config.hidden_size, rows = row_count(config);
    // Numbers of rows that fill no tile, 4 and 8 bits.
    const op_cases::RandomMatrix first(random, 1, out - 21, in, 4, config.group_size);
    const op_cases::RandomMatrix second(random, 1, 7, in, 8, config.group_size);
    const op_cases::RandomMatrix third(random, 1, 14, in, 4, config.group_size);
    const auto values = op_cases::normal_values(random, rows * in, 3.0F);
    const auto before = op_cases::normal_values(random, rows * out);
    expect_same_bits(config, "project_add", rows, [&](Ops& ops) -> OnRows {
      const QuantizedMatrix parts[] = {first.view(), second.view(), third.view()};
      return [&, weight = ops.load_linear(parts)](std::int64_t begin, std::int64_t end) {
        Tensor x = upload(ops, rows_of(before, out, begin, end), out);
        ops.project_add(upload(ops, rows_of(values, in, begin, end), in), weight, x);
        return op_cases::read(ops, x);
      };
    });
  }
}

TEST(CpuBatch, ProjectOfARow) {
  for (const ModelConfig& config : shapes()) {
    Random random(2);
    const std::int64_t in = config.hidden_size, rows = row_count(config);
    const op_cases::RandomMatrix matrix(random, 1, 203, in, 4, config.group_size);
    const auto norm = op_cases::normal_values(random, in);
    const auto values = op_cases::normal_values(random, rows * in, 3.0F);
    expect_same_bits(config, "project", rows, [&](Ops& ops) -> OnRows {
      const QuantizedMatrix parts[] = {matrix.view()};
      return
          [&, weight = ops.load_linear(parts), vector = ops.load_vector(norm)](std::int64_t begin, std::int64_t end) {
            Tensor out = ops.tensor(end - begin, 203);
            ops.project(upload(ops, rows_of(values, in, begin, end), in), vector, weight, out);
            return op_cases::read(ops, out);
          };
    });
  }
}

// So many rows that they do not fit the second-level cache.
TEST(CpuBatch, ProjectAddOfManyRows) {
#if defined(LILY_EMULATED) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "takes its time";
#endif
  const ModelConfig config = op_cases::full_shape();
  Random random(5);
  const std::int64_t in = config.value_rows(), out = 83, rows = 400;
  const op_cases::RandomMatrix matrix(random, 1, out, in, 4, config.group_size);
  const auto values = op_cases::normal_values(random, rows * in, 3.0F);
  const auto before = op_cases::normal_values(random, rows * out);
  expect_same_bits(config, "project_add", rows, [&](Ops& ops) -> OnRows {
    const QuantizedMatrix parts[] = {matrix.view()};
    return [&, weight = ops.load_linear(parts)](std::int64_t begin, std::int64_t end) {
      Tensor x = upload(ops, rows_of(before, out, begin, end), out);
      ops.project_add(upload(ops, rows_of(values, in, begin, end), in), weight, x);
      return op_cases::read(ops, x);
    };
  });
}

void expect_same_moe(const ModelConfig& config, const std::string& what, std::int64_t rows,
                     const op_cases::MoeCase& weights) {
  Random random(8);
  const std::int64_t in = config.hidden_size;
  const auto values = op_cases::normal_values(random, rows * in);
  expect_same_bits(config, what, rows, [&](Ops& ops) -> OnRows {
    return [&, loaded = weights.load(ops)](std::int64_t begin, std::int64_t end) {
      Tensor x = upload(ops, rows_of(values, in, begin, end), in);
      ops.mixture_of_experts(loaded, x);
      return op_cases::read(ops, x);
    };
  });
}

TEST(CpuBatch, MixtureOfExpertsOfARow) {
  for (const ModelConfig& config : shapes()) {
    Random random(3);
    expect_same_moe(config, "mixture_of_experts", row_count(config), op_cases::MoeCase(random, config));
  }
}

// Only one of an expert's first two matrices takes records.
TEST(CpuBatch, MixtureOfExpertsWithCodesOfTwoWidths) {
  const ModelConfig config = op_cases::demo_shape();
  for (const auto& [gate, up] : {std::pair(4, 8), std::pair(8, 4)}) {
    Random random(9);
    expect_same_moe(config, "gate " + std::to_string(gate) + " bits, up " + std::to_string(up), row_count(config),
                    op_cases::MoeCase(random, config, gate, up));
  }
}

// So many rows for one expert, the shared one, that a matrix unit takes them in turns.
TEST(CpuBatch, MixtureOfExpertsOfManyRows) {
#if defined(LILY_EMULATED) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "takes its time";
#endif
  const ModelConfig config = op_cases::demo_shape();
  Random random(6);
  expect_same_moe(config, "mixture_of_experts", 300, op_cases::MoeCase(random, config));
}

TEST(CpuBatch, GatedDeltaOfARow) {
  for (const ModelConfig& config : shapes()) {
    Random random(4);
    const op_cases::GatedDeltaCase weights(random, config);
    const std::int64_t in = config.linear_rows(), rows = row_count(config) + 30;
    const auto values = op_cases::normal_values(random, rows * in);
    expect_same_bits(config, "gated_delta", rows, [&](Ops& ops) -> OnRows {
      const std::shared_ptr<SequenceState> state = ops.new_state(16), other = ops.new_state(16);
      return [&, state, other, loaded = weights.load(ops)](std::int64_t begin, std::int64_t end) {
        // Beside a timeline that gets two rows each time.
        std::vector<float> batch(values.begin(), values.begin() + 2 * in);
        const auto own = rows_of(values, in, begin, end);
        batch.insert(batch.end(), own.begin(), own.end());
        Tensor out = ops.tensor(end - begin + 2, config.value_rows());
        const Segment segments[] = {{other.get(), 0, 2, 0}, {state.get(), 2, end - begin, begin}};
        ops.gated_delta(upload(ops, batch, in), loaded, 1, segments, out);
        std::vector<float> got = op_cases::read(ops, out);
        got.erase(got.begin(), got.begin() + 2 * config.value_rows());
        return got;
      };
    });
  }
}

}  // namespace
}  // namespace lily
