// Routing and the experts of one row, the three kernels in a row or in smaller pieces, against double loops.
#include "kernel_case.h"

namespace lily::test {
namespace {

class ExpertsStepTest : public KernelTest {
 protected:
  struct Shape {
    std::int64_t experts, count, hidden, intermediate, shared;
  };

  static void choose(const Doubles& logits, const Shape& s, std::vector<std::int64_t>& ids, Doubles& shares) {
    ids.resize(s.experts);
    for (std::int64_t i = 0; i < s.experts; ++i) ids[i] = i;
    std::stable_sort(ids.begin(), ids.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
    ids.resize(s.count);
    double total = 0;
    for (const auto id : ids) total += std::exp(logits[id] - logits[ids[0]]);
    for (const auto id : ids) shares.push_back(std::exp(logits[id] - logits[ids[0]]) / total);
  }

  /// PARTS: `up` makes one matrix's products, `down` one slot's.
  template <bool PARTS = false, typename Route, typename Up, typename Down>
  void run(const Route& route, const Up& up, const Down& down, const Shape& s, double tolerance, bool ties = false,
           std::int64_t up_rows = 16) {
    Matrix router = matrix(s.experts + 1, s.hidden, 8);
    if (ties) {  // experts 3, 4 and 5 are the same, and so are two groups of others
      const std::int64_t words = s.hidden / 4, groups = s.hidden / 64;
      for (std::int64_t e = 0; e < s.experts; ++e) {
        const std::int64_t source = e % 5;
        std::copy_n(router.codes.begin() + source * words, words, router.codes.begin() + e * words);
        std::copy_n(router.scales.begin() + source * groups, groups, router.scales.begin() + e * groups);
        std::copy_n(router.biases.begin() + source * groups, groups, router.biases.begin() + e * groups);
      }
    }
    const Matrix gate = matrix(s.experts * s.intermediate, s.hidden),
                 up_w = matrix(s.experts * s.intermediate, s.hidden);
    const Matrix down_w = matrix(s.experts * s.hidden, s.intermediate);
    const Matrix shared_gate = matrix(s.shared, s.hidden), shared_up = matrix(s.shared, s.hidden);
    const Matrix shared_down = matrix(s.hidden, s.shared);
    const Floats x = random(s.hidden), norm = random_bf16(s.hidden);

    const Doubles n = rms_norm(x, norm), logits = router.times(n);
    std::vector<std::int64_t> ids;
    Doubles shares, expected(x.begin(), x.end());
    choose(Doubles(logits.begin(), logits.end() - 1), s, ids, shares);
    const auto add_mlp = [&](const Matrix& g, const Matrix& u, const Matrix& d, std::int64_t e, std::int64_t size,
                             double share) {
      Doubles act = g.times(n, e * size, size);
      const Doubles ups = u.times(n, e * size, size);
      for (std::int64_t i = 0; i < size; ++i) act[i] = silu_of(act[i]) * ups[i];
      const Doubles out = d.times(act, e * s.hidden, s.hidden);
      for (std::int64_t i = 0; i < s.hidden; ++i) expected[i] += share * out[i];
    };
    for (std::size_t i = 0; i < ids.size(); ++i) add_mlp(gate, up_w, down_w, ids[i], s.intermediate, shares[i]);
    add_mlp(shared_gate, shared_up, shared_down, 0, s.shared, sigmoid_of(logits.back()));

    const auto r = upload(router), g = upload(gate), u = upload(up_w), d = upload(down_w);
    const auto sg = upload(shared_gate), su = upload(shared_up), sd = upload(shared_down);
    const auto x_buffer = upload(x), norm_buffer = upload(norm);
    const auto logits_buffer = device_->allocate((s.experts + 1) * 4), shared = device_->allocate(s.shared * 4);
    const auto act = device_->allocate(s.count * s.intermediate * 4);
    const auto tiles = [](std::int64_t rows) { return unsigned(rows + 15) / 16; };
    device_->dispatch(route, {.groups = {tiles(s.experts + 1) + tiles(s.shared)}}, r.codes->view<uint>(),
                      r.scales->view<bfloat>(), r.biases->view<bfloat>(), sg.codes->view<uint>(),
                      sg.scales->view<bfloat>(), sg.biases->view<bfloat>(), su.codes->view<uint>(),
                      su.scales->view<bfloat>(), su.biases->view<bfloat>(), x_buffer->view<float>(),
                      norm_buffer->view<float>(), logits_buffer->view<float>(), shared->view<float>(),
                      RouteStep{uint(s.experts), uint(s.hidden), uint(s.shared), 1e-6F});
    const ExpertsUpStep up_p{uint(s.experts), uint(s.count), uint(s.hidden), uint(s.intermediate), 1e-6F};
    const ExpertsDownStep down_p{uint(s.experts), uint(s.count), uint(s.hidden), uint(s.intermediate), uint(s.shared)};
    const Extent up_groups{unsigned((s.intermediate + up_rows - 1) / up_rows), unsigned(s.count)};
    if constexpr (PARTS) {
      const uint values = uint(s.count * s.intermediate);
      const auto ups = device_->allocate(values * 4), out = device_->allocate((s.count + 1) * s.hidden * 4);
      const auto product = [&](const MatrixBuffers& w, const Buffer& to) {
        device_->dispatch(up, {.groups = up_groups}, w.codes->view<uint>(), w.scales->view<bfloat>(),
                          w.biases->view<bfloat>(), x_buffer->view<float>(), norm_buffer->view<float>(),
                          logits_buffer->view<float>(), to.view<float>(), up_p);
      };
      product(g, *act);
      product(u, *ups);
      device_->dispatch(kernels::activate_step_256, {.groups = {(values + 255) / 256}}, act->view<float>(),
                        ups->view<float>(), values);
      device_->dispatch(down, {.groups = {tiles(s.hidden), unsigned(s.count + 1)}}, d.codes->view<uint>(),
                        d.scales->view<bfloat>(), d.biases->view<bfloat>(), sd.codes->view<uint>(),
                        sd.scales->view<bfloat>(), sd.biases->view<bfloat>(), logits_buffer->view<float>(),
                        act->view<float>(), shared->view<float>(), out->view<float>(), down_p);
      device_->dispatch(kernels::experts_combine_step_256, {.groups = {unsigned(s.hidden + 255) / 256}},
                        logits_buffer->view<float>(), out->view<float>(), x_buffer->view<float>(), down_p);
      EXPECT_LT(error(download<float>(*x_buffer, s.hidden), expected), tolerance);
      return;
    } else {
      device_->dispatch(up, {.groups = up_groups}, g.codes->view<uint>(), g.scales->view<bfloat>(),
                        g.biases->view<bfloat>(), u.codes->view<uint>(), u.scales->view<bfloat>(),
                        u.biases->view<bfloat>(), x_buffer->view<float>(), norm_buffer->view<float>(),
                        logits_buffer->view<float>(), act->view<float>(), up_p);
      device_->dispatch(down, {.groups = {tiles(s.hidden)}}, d.codes->view<uint>(), d.scales->view<bfloat>(),
                        d.biases->view<bfloat>(), sd.codes->view<uint>(), sd.scales->view<bfloat>(),
                        sd.biases->view<bfloat>(), logits_buffer->view<float>(), act->view<float>(),
                        shared->view<float>(), x_buffer->view<float>(), down_p);
    }
    EXPECT_LT(error(download<float>(*logits_buffer, s.experts + 1), logits), tolerance);
    EXPECT_LT(error(download<float>(*x_buffer, s.hidden), expected), tolerance);
  }
};

TEST_P(ExpertsStepTest, MatchesAtAnySize) {
  const auto any = [&](const Shape& s, bool ties = false) {
    run(kernels::route_step_any, kernels::experts_up_step_q4, kernels::experts_down_step_q4, s, 2e-6, ties);
  };
  any({32, 8, 256, 64, 64});
  any({9, 8, 64, 128, 64});
  any({40, 4, 320, 64, 192});
  any({256, 8, 64, 64, 64});
}

TEST_P(ExpertsStepTest, GivesTiesToTheLowerExpert) {
  run(kernels::route_step_any, kernels::experts_up_step_q4, kernels::experts_down_step_q4, {64, 8, 128, 64, 64}, 2e-6,
      true);
}

TEST_P(ExpertsStepTest, MatchesAtTheModelsSize) {
  const Shape s{24, 8, 2048, 512, 512};  // fewer experts: the weights of all take minutes to make
  run(kernels::route_step_2048, kernels::experts_up_step_q4_2048, kernels::experts_down_step_q4_512, s, 2e-6);
  run(kernels::route_step_2048_mma, kernels::experts_up_step_q4_2048_mma, kernels::experts_down_step_q4_512_mma, s,
      1e-5, false, 32);
}

TEST_P(ExpertsStepTest, MatchesInPieces) {
  for (const Shape& s : {Shape{32, 8, 256, 64, 64}, Shape{9, 8, 64, 128, 64}, Shape{40, 4, 320, 64, 192}})
    run<true>(kernels::route_step_any, kernels::experts_matrix_step_q4, kernels::experts_slot_step_q4, s, 2e-6);
  const Shape real{9, 8, 2048, 512, 512};
  run<true>(kernels::route_step_2048, kernels::experts_matrix_step_q4_2048, kernels::experts_slot_step_q4_512, real,
            2e-6);
  run<true>(kernels::route_step_2048_mma, kernels::experts_matrix_step_q4_2048_mma,
            kernels::experts_slot_step_q4_512_mma, real, 1e-5, false, 32);
}

LILY_KERNEL_TESTS(ExpertsStepTest);

}  // namespace
}  // namespace lily::test
