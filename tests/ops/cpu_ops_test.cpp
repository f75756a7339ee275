// Every op of the CPU backend against the reference, for each instruction set of this machine and several threads.
#include "ops/cpu/cpu_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <numeric>
#include <string>

#include "ops/cpu/memory.h"
#include "ops/op_cases.h"
#include "reference/reference_ops.h"
#include "support/mapped_file.h"

namespace lily {
namespace {

using op_cases::Random;

constexpr double kTolerance = 2e-5;  // with float32 activations, in units of the results' root mean square

// What rounding the activations may add: a uniform error of 1 / 65278 (1 / 254) of the largest of 64 values;
// an MLP rounds twice.
double rounding(Activations activations) {
  return activations == Activations::kFloat32 ? 0.0 : activations == Activations::kInt16 ? 5e-4 : 0.1;
}

struct Shape {
  std::string name;
  ModelConfig config;
  std::vector<std::int64_t> rows;
};

std::vector<Shape> shapes() {
#ifdef LILY_EMULATED
  return {{"demo", op_cases::demo_shape(), {1, 7, 33}},
          {"odd", op_cases::odd_shape(), {2, 33, 64}},
          {"full", op_cases::full_shape(), {1}}};
#else
  return {{"demo", op_cases::demo_shape(), {1, 2, 7, 33, 64}},
          {"odd", op_cases::odd_shape(), {1, 2, 7, 33, 64, 500}},
          {"full", op_cases::full_shape(), {1, 3}}};
#endif
}

Tensor cpu_tensor(Ops& ops, std::int64_t rows, std::int64_t cols, std::span<const float> values) {
  Tensor tensor = ops.tensor(rows, cols);
  std::copy(values.begin(), values.end(), cpu::values(tensor));
  return tensor;
}

struct Backend {
  std::string name;
  double rounding;
  std::unique_ptr<Ops> ops;
};

// The instruction sets to test. In the emulator the best and the plainest: the one between is the best of another of
// its CPUs (CMakeLists.txt).
std::vector<std::string> targets() {
  std::vector<std::string> all = cpu_targets();
#ifdef LILY_EMULATED
  if (all.size() > 2) all.erase(all.begin() + 1, all.end() - 1);
#endif
  return all;
}

std::vector<Backend> backends(const ModelConfig& config) {
  std::vector<Backend> all;
  for (const std::string& target : targets()) {
    for (const std::string mode : {"float32", "int16", "int8"}) {
      const Activations activations = activations_named(mode);
      const int threads = activations == Activations::kInt16 ? 3 : 1;
      all.push_back({target + " " + mode, rounding(activations),
                     make_cpu_ops(config, {.threads = threads, .target = target, .activations = activations})});
    }
  }
  return all;
}

// Runs `op` once on the reference and once on every backend, and compares the tensors that it gives.
using Op = std::function<Tensor(Ops& ops, const std::function<Tensor(std::span<const float>, std::int64_t)>& upload)>;

// `float16`: what a float16 KV cache may add.
void check(const ModelConfig& config, const std::string& what, const Op& op, double tolerance = kTolerance,
           double float16 = 0) {
  const auto reference = make_reference_ops(config);
  const Tensor expected = op(*reference, [](std::span<const float> values, std::int64_t cols) {
    return reference_tensor(static_cast<std::int64_t>(values.size()) / cols, cols, values);
  });
  const std::vector<float> expected_values = op_cases::read(*reference, expected);
  for (Backend& backend : backends(config)) {
    const Tensor got = op(*backend.ops, [&](std::span<const float> values, std::int64_t cols) {
      return cpu_tensor(*backend.ops, static_cast<std::int64_t>(values.size()) / cols, cols, values);
    });
    const double error = op_cases::error_of(op_cases::read(*backend.ops, got), expected_values);
    EXPECT_LE(error, tolerance + backend.rounding + (backend.rounding > 0 ? float16 : 0))
        << what << ", " << backend.name;
  }
}

void for_shapes_and_rows(const std::function<void(const ModelConfig&, std::int64_t, const std::string&)>& body) {
  for (const Shape& shape : shapes()) {
    for (const std::int64_t rows : shape.rows) body(shape.config, rows, shape.name + " rows " + std::to_string(rows));
  }
}

TEST(CpuOps, EmbedGivesTheTablesRows) {
  for_shapes_and_rows([](const ModelConfig& config, std::int64_t rows, const std::string& what) {
    Random random(1);
    const op_cases::RandomMatrix table(random, 1, config.vocab_size, config.hidden_size, 4, config.group_size);
    std::vector<std::int32_t> tokens;
    for (std::int64_t i = 0; i < rows; ++i) {
      tokens.push_back(static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(config.vocab_size)));
    }
    tokens.front() = static_cast<std::int32_t>(config.vocab_size - 1);
    check(config, what, [&](Ops& ops, const auto&) {
      const QuantizedMatrix parts[] = {table.view()};
      Tensor x = ops.tensor(rows, config.hidden_size);
      ops.embed(ops.load_linear(parts), tokens, x);
      return x;
    });
  });
}

TEST(CpuOps, ProjectNormalisesAndMultipliesAllParts) {
  for_shapes_and_rows([](const ModelConfig& config, std::int64_t rows, const std::string& what) {
    Random random(2);
    const std::int64_t in = config.hidden_size;
    const op_cases::RandomMatrix wide(random, 1, 130, in, 4, config.group_size);
    const op_cases::RandomMatrix narrow(random, 1, 7, in, 8, config.group_size);
    const op_cases::RandomMatrix third(random, 1, 66, in, 4, config.group_size);
    const std::vector<float> norm = op_cases::normal_values(random, in);
    const std::vector<float> values = op_cases::normal_values(random, rows * in, 3.0F);
    check(config, what, [&](Ops& ops, const auto& upload) {
      const QuantizedMatrix parts[] = {wide.view(), narrow.view(), third.view()};
      const Weight weight = ops.load_linear(parts);
      EXPECT_EQ(weight.out, 203);
      Tensor out = ops.tensor(rows, weight.out);
      ops.project(upload(values, in), ops.load_vector(norm), weight, out);
      return out;
    });
  });
}

TEST(CpuOps, ProjectAddAdds) {
  for_shapes_and_rows([](const ModelConfig& config, std::int64_t rows, const std::string& what) {
    Random random(3);
    const std::int64_t in = config.value_rows();
    const op_cases::RandomMatrix matrix(random, 1, config.hidden_size, in, 4, config.group_size);
    const std::vector<float> values = op_cases::normal_values(random, rows * in);
    const std::vector<float> before = op_cases::normal_values(random, rows * config.hidden_size);
    check(config, what, [&](Ops& ops, const auto& upload) {
      const QuantizedMatrix parts[] = {matrix.view()};
      Tensor x = upload(before, config.hidden_size);
      ops.project_add(upload(values, in), ops.load_linear(parts), x);
      return x;
    });
  });
}

// Large mapped matrices are copied: same results, and the file's bytes stay as they are.
TEST(CpuOps, MappedMatricesGiveWhatOthersDo) {
  const ModelConfig config = op_cases::full_shape();
  Random random(12);
  const std::int64_t in = config.hidden_size;
  const op_cases::RandomMatrix wide(random, 1, 2050, in, 4, 64), narrow(random, 1, 3, in, 8, 64);
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "cpu_ops_test_mapped";
  std::ofstream file(path, std::ios::binary);
  const auto write = [&](const auto& span) {
    file.write(reinterpret_cast<const char*>(span.data()), static_cast<std::streamsize>(span.size_bytes()));
  };
  for (const auto* matrix : {&wide, &narrow}) {
    write(matrix->view().codes);
    write(matrix->view().scales);
    write(matrix->view().biases);
  }
  file.close();
  const MappedFile mapped(path);
  const std::byte* at = mapped.bytes().data();
  const auto take = [&](auto& span) {
    span = {reinterpret_cast<decltype(span.data())>(at), span.size()};
    at += span.size_bytes();
  };
  std::vector<QuantizedMatrix> parts = {wide.view(), narrow.view()};
  const std::vector<QuantizedMatrix> in_memory = parts;
  for (QuantizedMatrix& part : parts) {
    take(part.codes);
    take(part.scales);
    take(part.biases);
    part.mapped = true;
  }
  const auto values = op_cases::normal_values(random, 3 * in);
  const auto ops = make_cpu_ops(config, {.threads = 2, .target = ""});
  const auto product = [&](std::span<const QuantizedMatrix> matrices) {
    Tensor out = cpu_tensor(*ops, 3, 2053, std::vector<float>(3 * 2053));
    ops->project_add(cpu_tensor(*ops, 3, in, values), ops->load_linear(matrices), out);
    return op_cases::read(*ops, out);
  };
  const std::vector<float> expected = product(in_memory);
  EXPECT_EQ(product(parts), expected);
  EXPECT_EQ(product(parts), expected);
  std::filesystem::remove(path);
}

TEST(CpuOps, LmHeadTakesTheWantedRows) {
  const ModelConfig config = op_cases::odd_shape();
  Random random(4);
  const op_cases::RandomMatrix matrix(random, 1, config.vocab_size, config.hidden_size, 4, config.group_size);
  const std::vector<float> norm = op_cases::normal_values(random, config.hidden_size);
  const std::vector<float> values = op_cases::normal_values(random, 9 * config.hidden_size);
  const std::vector<std::int64_t> rows = {8, 0, 3};
  check(config, "lm_head", [&](Ops& ops, const auto& upload) {
    const QuantizedMatrix parts[] = {matrix.view()};
    Tensor logits = ops.tensor(3, config.vocab_size);
    ops.lm_head(upload(values, config.hidden_size), ops.load_vector(norm), ops.load_linear(parts), rows, logits);
    return logits;
  });
}

// Two timelines in one batch, the second with tokens before it; then one more token of each: the state went along.
Op delta_op(const ModelConfig& config, const op_cases::GatedDeltaCase& weights, std::int64_t rows,
            const std::vector<float>& projected, const std::vector<float>& later) {
  return [=](Ops& ops, const auto& upload) {
    const GatedDeltaWeights loaded = weights.load(ops);
    const auto first = ops.new_state(16), second = ops.new_state(16);
    Tensor ignored = ops.tensor(2, config.value_rows());
    const Segment before[] = {{second.get(), 0, 2, 0}};
    ops.gated_delta(upload(later, config.linear_rows()), loaded, 1, before, ignored);
    Tensor out = ops.tensor(2 * rows, config.value_rows());
    const Segment batch[] = {{first.get(), 0, rows, 0}, {second.get(), rows, rows, 2}};
    ops.gated_delta(upload(projected, config.linear_rows()), loaded, 1, batch, out);
    const Segment after[] = {{first.get(), 0, 1, rows}, {second.get(), 1, 1, rows + 2}};
    ops.gated_delta(upload(later, config.linear_rows()), loaded, 1, after, ignored);
    std::vector<float> all = op_cases::read(ops, out);
    const std::vector<float> last = op_cases::read(ops, ignored);
    all.insert(all.end(), last.begin(), last.end());
    return upload(all, config.value_rows());
  };
}

TEST(CpuOps, GatedDeltaFollowsTheRecurrence) {
  for_shapes_and_rows([](const ModelConfig& config, std::int64_t rows, const std::string& what) {
    Random random(5);
    const op_cases::GatedDeltaCase weights(random, config);
    const auto projected = op_cases::normal_values(random, 2 * rows * config.linear_rows());
    const auto later = op_cases::normal_values(random, 2 * config.linear_rows());
    check(config, what, delta_op(config, weights, rows, projected, later), 1e-4);
  });
}

// As delta_op; the second timeline begins at a position inside a block of the cache.
Op attention_op(const ModelConfig& config, const op_cases::AttentionCase& weights, std::int64_t rows,
                std::int64_t before_rows, const std::vector<float>& projected, const std::vector<float>& earlier) {
  return [=](Ops& ops, const auto& upload) {
    const AttentionWeights loaded = weights.load(ops);
    const auto first = ops.new_state(rows), second = ops.new_state(rows + before_rows);
    Tensor ignored = ops.tensor(before_rows, config.num_attention_heads * config.head_dim);
    const Segment before[] = {{second.get(), 0, before_rows, 0}};
    ops.attention(upload(earlier, config.attention_rows()), loaded, 0, before, ignored);
    Tensor out = ops.tensor(2 * rows, config.num_attention_heads * config.head_dim);
    const Segment batch[] = {{first.get(), 0, rows, 0}, {second.get(), rows, rows, before_rows}};
    ops.attention(upload(projected, config.attention_rows()), loaded, 0, batch, out);
    return out;
  };
}

TEST(CpuOps, AttentionIsCausalOverTheWholeTimeline) {
  for_shapes_and_rows([](const ModelConfig& config, std::int64_t shape_rows, const std::string& what) {
    const std::int64_t rows = std::min<std::int64_t>(shape_rows, 130);  // scalar code and sanitizers take their time
    // After 300, few rows take their context in ranges that are joined; after 63, the rows begin inside a block.
    const std::int64_t before_rows = rows == 2 ? 1 : rows == 7 || (rows == 1 && config.hidden_size < 512) ? 300 : 63;
    Random random(6);
    const op_cases::AttentionCase weights(random, config);
    const auto projected = op_cases::normal_values(random, 2 * rows * config.attention_rows());
    const auto earlier = op_cases::normal_values(random, before_rows * config.attention_rows());
    check(config, what + " after " + std::to_string(before_rows),
          attention_op(config, weights, rows, before_rows, projected, earlier), kTolerance, 1.5e-2);
  });
}

// Attention over `rows` rows of one timeline, in chunks that end at `ends`. `others`: timelines that share the batches,
// before and after it; their rows are not returned.
std::vector<float> attend_in_chunks(const ModelConfig& config, Ops& ops, const AttentionWeights& weights,
                                    std::span<const float> projected, std::span<const std::int64_t> ends,
                                    std::int64_t others) {
  const std::int64_t in = config.attention_rows(), width = config.num_attention_heads * config.head_dim;
  const auto state = ops.new_state(ends.back()), left = ops.new_state(ends.back()), right = ops.new_state(ends.back());
  std::vector<float> all;
  std::int64_t begin = 0;
  for (const std::int64_t end : ends) {
    const std::int64_t rows = end - begin;
    const auto chunk = projected.subspan(static_cast<std::size_t>(begin * in), static_cast<std::size_t>(rows * in));
    const std::int64_t other_rows = others * std::min<std::int64_t>(rows, 11);
    std::vector<float> batch(projected.begin(), projected.begin() + other_rows * in);
    batch.insert(batch.end(), chunk.begin(), chunk.end());
    batch.insert(batch.end(), projected.begin(), projected.begin() + other_rows * in);
    std::vector<Segment> segments = {{state.get(), other_rows, rows, begin}};
    if (others > 0) {
      segments.insert(segments.begin(), {left.get(), 0, other_rows, 0});
      segments.push_back({right.get(), other_rows + rows, other_rows, begin});
    }
    const Tensor x = cpu_tensor(ops, rows + 2 * other_rows, in, batch);
    Tensor out = ops.tensor(x.rows, width);
    ops.attention(x, weights, 0, segments, out);
    const std::vector<float> got = op_cases::read(ops, out);
    all.insert(all.end(), got.begin() + other_rows * width, got.begin() + (other_rows + rows) * width);
    begin = end;
  }
  return all;
}

// A row's attention is the same to the bit whether its timeline came in one call, token by token or in chunks, alone or
// among others, with any number of threads.
TEST(CpuOps, AttentionOfARowDoesNotDependOnItsBatch) {
#if defined(LILY_EMULATED) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr std::int64_t kRows = 270;  // two ranges
#else
  constexpr std::int64_t kRows = 600;
#endif
  for (const ModelConfig& config : {op_cases::demo_shape(), op_cases::odd_shape()}) {
    Random random(13);
    const op_cases::AttentionCase weights(random, config);
    const auto projected = op_cases::normal_values(random, kRows * config.attention_rows(), 2.0F);
    std::vector<std::int64_t> ones(kRows), chunks, small_chunks;
    std::iota(ones.begin(), ones.end(), 1);
    for (std::int64_t at = 0; at < kRows; chunks.push_back(at)) {
      at = std::min<std::int64_t>(kRows, at + 1 + static_cast<std::int64_t>(random() % 120U));
    }
    for (std::int64_t at = 0; at < kRows; small_chunks.push_back(at)) {
      at = std::min<std::int64_t>(kRows, at + 1 + static_cast<std::int64_t>(random() % 10U));
    }
    for (const std::string& target : targets()) {
      for (const std::string mode : {"float32", "int16"}) {
        std::vector<float> expected;
        for (const int threads : {1, 3}) {
          const auto ops =
              make_cpu_ops(config, {.threads = threads, .target = target, .activations = activations_named(mode)});
          const AttentionWeights loaded = weights.load(*ops);
          const auto expect_equal = [&](const std::string& what, std::span<const std::int64_t> ends,
                                        std::int64_t others) {
            const std::vector<float> got = attend_in_chunks(config, *ops, loaded, projected, ends, others);
            if (expected.empty()) expected = got;
            ASSERT_EQ(got.size(), expected.size());
            EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
                << what << ", " << target << " " << mode << " threads " << threads;
          };
          expect_equal("in one call", std::vector{kRows}, 0);
          expect_equal("in chunks", chunks, 0);
          expect_equal("in small chunks among others", small_chunks, 1);
          if (threads == 1) expect_equal("token by token", ones, 0);
        }
      }
    }
  }
}

TEST(CpuOps, MixtureOfExpertsRoutesEveryRow) {
  for_shapes_and_rows([](const ModelConfig& config, std::int64_t rows, const std::string& what) {
    Random random(7);
    const op_cases::MoeCase weights(random, config);
    const auto values = op_cases::normal_values(random, rows * config.hidden_size);
    check(config, what, [&](Ops& ops, const auto& upload) {
      Tensor x = upload(values, config.hidden_size);
      ops.mixture_of_experts(weights.load(ops), x);
      return x;
    });
  });
}

// All rows alike: some experts get every row, the others none.
TEST(CpuOps, MixtureOfExpertsWithOneRouteForAll) {
  const ModelConfig config = op_cases::demo_shape();
  Random random(8);
  const op_cases::MoeCase weights(random, config);
  const auto row = op_cases::normal_values(random, config.hidden_size);
  std::vector<float> values;
  for (int i = 0; i < 40; ++i) values.insert(values.end(), row.begin(), row.end());
  check(config, "one route", [&](Ops& ops, const auto& upload) {
    Tensor x = upload(values, config.hidden_size);
    ops.mixture_of_experts(weights.load(ops), x);
    return x;
  });
}

// Sums and products far beyond what a model makes, but finite, give no NaN.
TEST(CpuOps, ExtremeInputsGiveNoNan) {
  const ModelConfig config = op_cases::demo_shape();
  Random random(9);
  const op_cases::MoeCase moe(random, config);
  const op_cases::GatedDeltaCase delta(random, config);
  const op_cases::AttentionCase attention(random, config);
  for (Backend& backend : backends(config)) {
    Ops& ops = *backend.ops;
    for (const float size : {0.0F, 1e-30F, 1e4F, 1e18F}) {
      const auto expect_finite = [&](const Tensor& tensor) {
        const std::vector<float> values = op_cases::read(ops, tensor);
        EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); }))
            << backend.name << " size " << size;
      };
      const auto input = [&](std::int64_t cols) {
        return cpu_tensor(ops, 5, cols, op_cases::normal_values(random, 5 * cols, size));
      };
      const auto state = ops.new_state(5);
      const Segment batch[] = {{state.get(), 0, 5, 0}};
      Tensor x = input(config.hidden_size);
      ops.mixture_of_experts(moe.load(ops), x);
      if (size < 1e10F) expect_finite(x);
      Tensor mixed = ops.tensor(5, config.value_rows());
      ops.gated_delta(input(config.linear_rows()), delta.load(ops), 0, batch, mixed);
      expect_finite(mixed);
      Tensor attended = ops.tensor(5, config.num_attention_heads * config.head_dim);
      ops.attention(input(config.attention_rows()), attention.load(ops), 0, batch, attended);
      expect_finite(attended);
    }
  }
}

// A state's bytes taken out and put into another continue exactly as the first.
TEST(CpuOps, StatesCanBeCopiedThroughBytes) {
  const ModelConfig config = op_cases::odd_shape();
  Random random(10);
  const op_cases::GatedDeltaCase delta(random, config);
  const op_cases::AttentionCase attention(random, config);
  const auto ops = make_cpu_ops(config, {.threads = 2, .target = ""});
  const auto linear =
      cpu_tensor(*ops, 9, config.linear_rows(), op_cases::normal_values(random, 9 * config.linear_rows()));
  const auto full =
      cpu_tensor(*ops, 9, config.attention_rows(), op_cases::normal_values(random, 9 * config.attention_rows()));
  const GatedDeltaWeights delta_weights = delta.load(*ops);
  const AttentionWeights attention_weights = attention.load(*ops);
  const auto run = [&](SequenceState& state, std::int64_t position) {
    const Segment batch[] = {{&state, 0, 9, position}};
    Tensor mixed = ops->tensor(9, config.value_rows());
    Tensor attended = ops->tensor(9, config.num_attention_heads * config.head_dim);
    ops->gated_delta(linear, delta_weights, 2, batch, mixed);
    ops->attention(full, attention_weights, 1, batch, attended);
    std::vector<float> all = op_cases::read(*ops, mixed);
    const std::vector<float> more = op_cases::read(*ops, attended);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const auto first = ops->new_state(20), second = ops->new_state(33);
  const std::vector<float> fresh = run(*first, 0);
  std::vector<std::byte> recurrent(first->recurrent_bytes()), kv(9 * first->kv_bytes_per_token());
  first->read_recurrent(recurrent);
  first->read_kv(0, 9, kv);
  second->write_recurrent(recurrent);
  second->write_kv(0, 4, std::span(kv).first(4 * first->kv_bytes_per_token()));
  second->write_kv(4, 9, std::span(kv).subspan(4 * first->kv_bytes_per_token()));
  EXPECT_EQ(first->layout(), second->layout());
  EXPECT_EQ(run(*first, 9), run(*second, 9));
  second->reset();
  EXPECT_EQ(run(*second, 0), fresh);
}

// The same results whatever the number of threads, to the bit.
TEST(CpuOps, ThreadsDoNotChangeResults) {
  const ModelConfig config = op_cases::demo_shape();
  Random random(11);
  const op_cases::MoeCase weights(random, config);
  const auto values = op_cases::normal_values(random, 65 * config.hidden_size);
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 5}) {
    const auto ops = make_cpu_ops(config, {.threads = threads, .target = ""});
    Tensor x = cpu_tensor(*ops, 65, config.hidden_size, values);
    ops->mixture_of_experts(weights.load(*ops), x);
    results.push_back(op_cases::read(*ops, x));
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(CpuOps, UnknownTargetIsAnError) {
  EXPECT_ANY_THROW(make_cpu_ops(op_cases::demo_shape(), {.threads = 1, .target = "mmx"}));
}

TEST(CpuOps, EachTargetIsAvailable) {
  std::cout << "targets:";
  for (const std::string& target : cpu_targets()) {
    std::cout << " " << target;
    EXPECT_NE(make_cpu_ops(op_cases::demo_shape(), {.threads = 1, .target = target}), nullptr);
  }
  std::cout << "\n";
}

}  // namespace
}  // namespace lily
