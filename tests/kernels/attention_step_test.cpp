// Attention of one token, split and merged, against double loops.
#include "kernel_case.h"

namespace lily::test {
namespace {

class AttentionStepTest : public KernelTest {
 protected:
  struct Shape {
    std::int64_t heads, kv_heads, size, rotary;
  };

  /// How the work is shared out; the result is the same.
  struct Way {
    uint packed = 0;  // query heads of a threadgroup; 0: all of a key/value head
    uint span = 0;    // tokens of a split; 0: shared out
    bool prepared = false;
  };

  static Doubles turned(const Floats& x, const Floats& weight, const Shape& s, std::int64_t position) {
    Doubles y = rms_norm(x, weight);
    for (std::int64_t i = 0; i < s.rotary / 2; ++i) {
      const double angle = double(position) * std::pow(1e7, -2.0 * double(i) / double(s.rotary)), a = y[i],
                   b = y[i + s.rotary / 2];
      y[i] = a * std::cos(angle) - b * std::sin(angle);
      y[i + s.rotary / 2] = b * std::cos(angle) + a * std::sin(angle);
    }
    return y;
  }
  static double bf16(double x) { return float(to_bfloat16(float(x))); }

  template <typename Step, typename Merge>
  void run(const Step& step_kernel, const Merge& merge_kernel, const Shape& s, std::int64_t position, uint splits,
           const Way& way = {}) {
    const std::int64_t D = s.size, kv_rows = s.kv_heads * D, group = s.heads / s.kv_heads;
    const Floats projected = random(2 * s.heads * D + 2 * kv_rows), q_norm = random_bf16(D), k_norm = random_bf16(D);
    const Floats old_keys = random_bf16(position * kv_rows), old_values = random_bf16(position * kv_rows);
    const auto head_of = [&](std::int64_t first) {
      return Floats(projected.begin() + first, projected.begin() + first + D);
    };
    Floats turns((position + 1) * s.rotary);
    for (std::int64_t p = 0; p <= position; ++p)
      for (std::int64_t i = 0; i < s.rotary / 2; ++i) {
        const double angle = double(p) * std::pow(1e7, -2.0 * double(i) / double(s.rotary));
        turns[p * s.rotary + 2 * i] = float(std::cos(angle));
        turns[p * s.rotary + 2 * i + 1] = float(std::sin(angle));
      }

    Doubles expected(s.heads * D);
    std::vector<Doubles> new_keys;
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const std::int64_t kv = h / group;
      const Doubles q = turned(head_of(2 * h * D), q_norm, s, position);
      Doubles k = turned(head_of(2 * s.heads * D + kv * D), k_norm, s, position);
      for (double& value : k) value = bf16(value);
      if (h % group == 0) new_keys.push_back(k);
      Doubles scores, out(D);
      double top = -1e300, total = 0;
      for (std::int64_t t = 0; t <= position; ++t) {
        double dot = 0;
        for (std::int64_t i = 0; i < D; ++i) dot += q[i] * (t < position ? old_keys[t * kv_rows + kv * D + i] : k[i]);
        scores.push_back(dot / std::sqrt(double(D)));
        top = std::max(top, scores.back());
      }
      for (std::int64_t t = 0; t <= position; ++t) {
        const double weight = std::exp(scores[t] - top);
        total += weight;
        for (std::int64_t i = 0; i < D; ++i)
          out[i] += weight * (t < position ? double(old_values[t * kv_rows + kv * D + i])
                                           : bf16(projected[2 * s.heads * D + kv_rows + kv * D + i]));
      }
      for (std::int64_t i = 0; i < D; ++i)
        expected[h * D + i] = out[i] / total * sigmoid_of(projected[(2 * h + 1) * D + i]);
    }

    const auto cache = [&](const Floats& rows) {
      std::vector<BFloat16> values((position + 1) * kv_rows, BFloat16{0x7fc0});
      for (std::size_t i = 0; i < rows.size(); ++i) values[i] = to_bfloat16(rows[i]);
      return upload(values);
    };
    const auto projected_buffer = upload(projected), q_buffer = upload(q_norm), k_buffer = upload(k_norm);
    const auto turns_buffer = upload(turns), step = upload(std::vector<StepState>{{uint(position), 0, 0}});
    const auto keys = cache(old_keys), values = cache(old_values);
    const auto part_o = device_->allocate(s.heads * splits * D * 4), part_ml = device_->allocate(s.heads * splits * 8);
    const auto out = device_->allocate(s.heads * D * 4);
    const uint packed = way.packed > 0 ? way.packed : uint(group);
    const AttentionStep p{
        uint(s.heads), uint(s.kv_heads), splits, way.span, packed, way.prepared ? 1U : 0U, {uint(kv_rows), uint(D), 8},
        1e-6F};
    const auto prepared = device_->allocate(projected.size() * 4);
    if (way.prepared) {
      device_->dispatch(D == 256 ? kernels::attention_prepare_step_256 : kernels::attention_prepare_step_128,
                        {.groups = {unsigned(s.heads + 2 * s.kv_heads + 3) / 4}}, projected_buffer->view<float>(),
                        q_buffer->view<float>(), k_buffer->view<float>(), turns_buffer->view<float>(),
                        step->view<StepState>(), prepared->view<float>(), p);
    }
    device_->dispatch(step_kernel, {.groups = {splits, unsigned(s.heads) / packed}},
                      (way.prepared ? *prepared : *projected_buffer).view<float>(), q_buffer->view<float>(),
                      k_buffer->view<float>(), turns_buffer->view<float>(), step->view<StepState>(),
                      keys->template view<bfloat>(), values->template view<bfloat>(), part_o->view<float>(),
                      part_ml->view<float>(), p);
    device_->dispatch(merge_kernel, {.groups = {unsigned(D / 64), unsigned(s.heads)}}, part_o->view<float>(),
                      part_ml->view<float>(), projected_buffer->view<float>(), out->view<float>(),
                      AttentionMerge{splits});
    EXPECT_LT(error(download<float>(*out, expected.size()), expected), 1e-5) << position << " tokens, " << splits;
    const auto kept = download<BFloat16>(*keys, (position + 1) * kv_rows);
    for (std::int64_t kv = 0; kv < s.kv_heads; ++kv)
      for (std::int64_t i = 0; i < D; ++i)
        EXPECT_NEAR(float(kept[position * kv_rows + kv * D + i]), new_keys[kv][i], 0.02) << kv << " " << i;
  }
};

TEST_P(AttentionStepTest, MatchesAtTheEdgesOfSplits) {
  for (const std::int64_t position : {0, 1, 15, 16, 17, 255, 256, 257})
    run(kernels::attention_step_256, kernels::attention_merge_256, {16, 2, 256, 64}, position, 5);
}

TEST_P(AttentionStepTest, TensorCoresKeepFloat32) {
  for (const std::int64_t position : {0, 1, 15, 16, 17, 80, 255, 256, 257})
    run(kernels::attention_step_mma_256, kernels::attention_merge_256, {16, 2, 256, 64}, position, 5);
  run(kernels::attention_step_mma_256, kernels::attention_merge_256, {8, 1, 256, 64}, 300, 1);
  run(kernels::attention_step_mma_256, kernels::attention_merge_256, {6, 2, 256, 64}, 70, 40);
}

TEST_P(AttentionStepTest, MatchesHoweverTheWorkIsSharedOut) {
  for (const Way& way : {Way{.packed = 1}, Way{.span = 64}, Way{.prepared = true}}) {
    for (const std::int64_t position : {0, 63, 64, 257}) {
      run(kernels::attention_step_256, kernels::attention_merge_256, {16, 2, 256, 64}, position, 5, way);
      run(kernels::attention_step_mma_256, kernels::attention_merge_256, {16, 2, 256, 64}, position, 5, way);
    }
    run(kernels::attention_step_128, kernels::attention_merge_128, {6, 2, 128, 32}, 33, 3, way);
  }
}

TEST_P(AttentionStepTest, MatchesForOtherShapes) {
  run(kernels::attention_step_256, kernels::attention_merge_256, {8, 1, 256, 64}, 100, 1);
  run(kernels::attention_step_256, kernels::attention_merge_256, {6, 2, 256, 64}, 70, 40);
  run(kernels::attention_step_128, kernels::attention_merge_128, {4, 4, 128, 32}, 33, 3);
}

LILY_KERNEL_TESTS(AttentionStepTest);

}  // namespace
}  // namespace lily::test
