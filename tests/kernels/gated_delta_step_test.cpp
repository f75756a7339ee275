// The delta rule's step kernel against double loops, over several tokens so that the conv ring and the state move.
#include "kernel_case.h"

namespace lily::test {
namespace {

struct DeltaShape {
  std::int64_t key_heads, value_heads, size;
  std::int64_t key_rows() const { return key_heads * size; }
  std::int64_t value_rows() const { return value_heads * size; }
  std::int64_t channels() const { return 2 * key_rows() + value_rows(); }
  std::int64_t rows() const { return channels() + value_rows() + 2 * value_heads; }
};

class GatedDeltaStepTest : public KernelTest {
 protected:
  /// One token in double: moves `inputs` (the last 3) and `state` on, gives y.
  static Doubles reference(const DeltaShape& s, const Floats& projected, const Floats& taps, const Floats& A_log,
                           const Floats& dt_bias, std::vector<Doubles>& inputs, Doubles& state) {
    Doubles now(projected.begin(), projected.begin() + s.channels()), conv(s.channels());
    for (std::int64_t c = 0; c < s.channels(); ++c)
      conv[c] = silu_of(taps[4 * c] * inputs[0][c] + taps[4 * c + 1] * inputs[1][c] + taps[4 * c + 2] * inputs[2][c] +
                        taps[4 * c + 3] * now[c]);
    inputs = {inputs[1], inputs[2], now};
    const auto normed = [&](std::int64_t first, double factor) {
      Floats head(conv.begin() + first, conv.begin() + first + s.size);
      Doubles result = rms_norm(head, {});
      for (double& value : result) value *= factor;
      return result;
    };
    Doubles y(s.value_rows());
    for (std::int64_t h = 0; h < s.value_heads; ++h) {
      const std::int64_t key_head = h / (s.value_heads / s.key_heads);
      const Doubles q = normed(key_head * s.size, 1.0 / double(s.size));
      const Doubles k = normed(s.key_rows() + key_head * s.size, 1 / std::sqrt(double(s.size)));
      const double b = projected[s.channels() + s.value_rows() + h];
      const double a = projected[s.channels() + s.value_rows() + s.value_heads + h];
      const double g = std::exp(-std::exp(double(A_log[h])) * std::log1p(std::exp(a + dt_bias[h])));
      for (std::int64_t r = 0; r < s.size; ++r) {
        double* row = &state[(h * s.size + r) * s.size];
        double dot = 0;
        for (std::int64_t i = 0; i < s.size; ++i) dot += (row[i] *= g) * k[i];
        const double u = sigmoid_of(b) * (conv[2 * s.key_rows() + h * s.size + r] - dot);
        for (std::int64_t i = 0; i < s.size; ++i) y[h * s.size + r] += (row[i] += u * k[i]) * q[i];
      }
    }
    return y;
  }

  /// `whole`: one kernel does it all; else the conv and the norms are a launch before it.
  template <typename Kernel>
  void run(const Kernel& kernel, const DeltaShape& s, uint first_position, bool whole = true) {
    const Floats taps = random(4 * s.channels()), A_log = random(s.value_heads), dt_bias = random(s.value_heads);
    Floats ring = random(4 * s.channels()), initial = random(s.value_rows() * s.size, 0.1F);
    std::vector<Doubles> inputs(3);
    for (uint i = 0; i < 3; ++i) {  // the input of position first - 3 + i stands in its slot
      const auto slot = ring.begin() + std::int64_t((first_position + 1 + i) % 4) * s.channels();
      inputs[i].assign(slot, slot + s.channels());
    }
    Doubles state(initial.begin(), initial.end());
    const auto taps_buffer = upload(taps), A_buffer = upload(A_log), dt_buffer = upload(dt_bias);
    const auto ring_buffer = upload(ring), state_buffer = upload(initial), y = device_->allocate(s.value_rows() * 4);
    const auto prepared = device_->allocate(s.rows() * 4);
    const GatedDeltaStep p{uint(s.key_heads), uint(s.value_heads), 1e-6F};
    const auto launch = [&](const Buffer& projected, const Buffer& step) {
      if (!whole) {
        device_->dispatch(s.size == 128 ? kernels::delta_prepare_step_128 : kernels::delta_prepare_step_64,
                          {.groups = {unsigned(2 * s.key_heads + s.value_heads + 3) / 4}}, projected.view<float>(),
                          taps_buffer->view<float>(), step.view<StepState>(), ring_buffer->view<float>(),
                          prepared->view<float>(), p);
      }
      device_->dispatch(kernel, {.groups = {unsigned(s.size / 32), unsigned(s.value_heads)}},
                        (whole ? projected : *prepared).view<float>(), taps_buffer->view<float>(),
                        A_buffer->view<float>(), dt_buffer->view<float>(), step.view<StepState>(),
                        ring_buffer->view<float>(), state_buffer->view<float>(), y->view<float>(), p);
    };
    for (uint position = first_position; position < first_position + 5; ++position) {
      const Floats projected = random(s.rows());
      const Doubles expected = reference(s, projected, taps, A_log, dt_bias, inputs, state);
      const auto projected_buffer = upload(projected), step = upload(std::vector<StepState>{{position, 0, 0}});
      launch(*projected_buffer, *step);
      EXPECT_LT(error(download<float>(*y, s.value_rows()), expected), 3e-6) << "position " << position;
      EXPECT_LT(error(download<float>(*state_buffer, state.size()), state), 3e-6);
    }
    // After a stop token nothing moves.
    const auto projected_buffer = upload(random(s.rows())), step = upload(std::vector<StepState>{{9, 0, 1}});
    const auto before = download<float>(*state_buffer, state.size()),
               ring_before = download<float>(*ring_buffer, ring.size());
    launch(*projected_buffer, *step);
    EXPECT_EQ(download<float>(*state_buffer, state.size()), before);
    EXPECT_EQ(download<float>(*ring_buffer, ring.size()), ring_before);
  }
};

TEST_P(GatedDeltaStepTest, FollowsTheEquations) {
  run(kernels::gated_delta_step_128, {2, 4, 128}, 5);
  run(kernels::gated_delta_step_64, {1, 1, 64}, 0);
  run(kernels::gated_delta_step_64, {2, 6, 64}, 1022);
}

TEST_P(GatedDeltaStepTest, FollowsTheEquationsInPieces) {
  run(kernels::prepared_delta_step_128, {2, 4, 128}, 5, false);
  run(kernels::prepared_delta_step_64, {2, 6, 64}, 1022, false);
}

LILY_KERNEL_TESTS(GatedDeltaStepTest);

}  // namespace
}  // namespace lily::test
