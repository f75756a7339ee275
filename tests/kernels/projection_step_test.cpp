// The matrix-vector kernels of decode against double loops.
#include "kernel_case.h"

namespace lily::test {
namespace {

class ProjectionStep : public KernelTest {
 protected:
  template <typename Kernel>
  double project_error(const Kernel& kernel, std::int64_t rows, std::int64_t columns, std::int64_t tile = 16) {
    const Matrix w = matrix(rows, columns);
    const Floats x = random(columns), norm = random_bf16(columns);
    const auto weights = upload(w);
    const auto x_buffer = upload(x), norm_buffer = upload(norm);
    const auto out = device_->allocate(rows * 4);
    device_->dispatch(kernel, {.groups = {unsigned((rows + tile - 1) / tile)}}, weights.codes->view<uint>(),
                      weights.scales->view<bfloat>(), weights.biases->view<bfloat>(), x_buffer->view<float>(),
                      norm_buffer->view<float>(), out->view<float>(), ProjectStep{uint(rows), uint(columns), 1e-6F});
    return error(download<float>(*out, rows), w.times(rms_norm(x, norm)));
  }

  template <typename Kernel>
  double project_add_error(const Kernel& kernel, std::int64_t rows, std::int64_t columns, std::int64_t head) {
    const Matrix w = matrix(rows, columns);
    const Floats in = random(columns), z = random(columns), norm = random_bf16(std::max<std::int64_t>(head, 1)),
                 x = random(rows);
    Doubles input(in.begin(), in.end());
    for (std::int64_t first = 0; head > 0 && first < columns; first += head) {
      const Doubles normed = rms_norm(std::span(in).subspan(first, head), norm);
      for (std::int64_t i = 0; i < head; ++i) input[first + i] = normed[i] * silu_of(z[first + i]);
    }
    Doubles expected = w.times(input);
    for (std::int64_t r = 0; r < rows; ++r) expected[r] += x[r];
    const auto weights = upload(w);
    const auto in_buffer = upload(in), z_buffer = upload(z), norm_buffer = upload(norm), x_buffer = upload(x);
    device_->dispatch(kernel, {.groups = {unsigned((rows + 15) / 16)}}, weights.codes->view<uint>(),
                      weights.scales->view<bfloat>(), weights.biases->view<bfloat>(), in_buffer->view<float>(),
                      z_buffer->view<float>(), norm_buffer->view<float>(), x_buffer->view<float>(),
                      ProjectStep{uint(rows), uint(columns), 1e-6F});
    return error(download<float>(*x_buffer, rows), expected);
  }
};

TEST_P(ProjectionStep, NormsAndMultiplies) {
  EXPECT_LT(project_error(kernels::project_step_q4_2048, 40, 2048), 2e-6);
  EXPECT_LT(project_error(kernels::project_step_q4, 40, 2048), 2e-6);
  EXPECT_LT(project_error(kernels::project_step_q4, 33, 256), 2e-6);
  EXPECT_LT(project_error(kernels::project_step_q4, 1, 64), 2e-6);
  EXPECT_LT(project_error(kernels::project_step_q4, 18, 1344), 2e-6);
}

TEST_P(ProjectionStep, TensorCoresKeepFloat32) {
  EXPECT_LT(project_error(kernels::project_step_q4_2048_mma, 100, 2048, 48), 1e-5);
  EXPECT_LT(project_error(kernels::project_step_q4_2048_mma, 3, 2048, 48), 1e-5);
  EXPECT_LT(project_error(kernels::head_step_q4_2048_mma, 100, 2048, 48), 1e-5);
}

TEST_P(ProjectionStep, AddsToTheResidual) {
  EXPECT_LT(project_add_error(kernels::project_add_step_q4_4096, 24, 4096, 0), 2e-6);
  EXPECT_LT(project_add_error(kernels::project_add_step_q4_4096_mma, 24, 4096, 0), 1e-5);
  EXPECT_LT(project_add_error(kernels::project_add_step_q4, 20, 2048, 0), 2e-6);
  EXPECT_LT(project_add_error(kernels::project_add_step_q4, 7, 64, 0), 2e-6);
}

TEST_P(ProjectionStep, AppliesTheGatedNorm) {
  EXPECT_LT(project_add_error(kernels::gated_project_add_step_q4_4096, 24, 4096, 128), 2e-6);
  EXPECT_LT(project_add_error(kernels::gated_project_add_step_q4_4096_mma, 24, 4096, 128), 1e-5);
  EXPECT_LT(project_add_error(kernels::gated_project_add_step_q4_128, 20, 512, 128), 2e-6);
  EXPECT_LT(project_add_error(kernels::gated_project_add_step_q4_64, 20, 192, 64), 2e-6);
}

LILY_KERNEL_TESTS(ProjectionStep);

}  // namespace
}  // namespace lily::test
