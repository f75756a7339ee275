// What kernel tests share: random inputs, quantised matrices with their exact values, and the devices to run on: the
// emulator, and this machine's GPU if it has one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "device/device.h"
#include "kernels/kernels.h"
#include "support/bfloat16.h"

namespace lily::test {

using Doubles = std::vector<double>;
using Floats = std::vector<float>;

inline std::vector<DeviceKind> test_devices() {
  std::vector<DeviceKind> kinds{DeviceKind::kEmulated};
  if (const auto gpu = make_device(DeviceKind::kAuto)) kinds.push_back(gpu->info().kind);
  return kinds;
}

inline double silu_of(double x) {
  return x / (1 + std::exp(-x));
}
inline double sigmoid_of(double x) {
  return 1 / (1 + std::exp(-x));
}

/// A quantised matrix [rows, columns] as checkpoints hold it, and what it stands for.
struct Matrix {
  std::int64_t rows = 0, columns = 0;
  int bits = 4;
  std::vector<std::uint32_t> codes;
  std::vector<BFloat16> scales, biases;

  double at(std::int64_t row, std::int64_t column) const {
    const std::int64_t i = row * columns + column, per_word = 32 / bits;
    const std::uint32_t code = codes[i / per_word] >> (i % per_word * bits) & ((1U << bits) - 1);
    return double(float(scales[i / 64])) * code + double(float(biases[i / 64]));
  }
  /// W x for the rows [first, first + count).
  Doubles times(std::span<const double> x, std::int64_t first, std::int64_t count) const {
    Doubles y(count);
    for (std::int64_t r = 0; r < count; ++r)
      for (std::int64_t c = 0; c < columns; ++c) y[r] += at(first + r, c) * x[c];
    return y;
  }
  Doubles times(std::span<const double> x) const { return times(x, 0, rows); }
};

struct MatrixBuffers {
  std::unique_ptr<Buffer> codes, scales, biases;
};

class KernelTest : public testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override { device_ = make_device(GetParam()); }

  Floats random(std::size_t count, float scale = 1) {
    std::normal_distribution<float> normal(0, scale);
    Floats values(count);
    for (float& value : values) value = normal(random_);
    return values;
  }
  /// Values that bf16 holds exactly.
  Floats random_bf16(std::size_t count, float scale = 1) {
    Floats values = random(count, scale);
    for (float& value : values) value = float(to_bfloat16(value));
    return values;
  }
  Matrix matrix(std::int64_t rows, std::int64_t columns, int bits = 4) {
    Matrix m{rows, columns, bits, {}, {}, {}};
    m.codes.resize(rows * columns * bits / 32);
    for (auto& word : m.codes) word = static_cast<std::uint32_t>(random_());
    const float scale = 1.7F / std::sqrt(float(columns)) / float(1 << bits);
    for (std::int64_t i = 0; i < rows * columns / 64; ++i) {
      const float s = scale * std::normal_distribution<float>(2, 1)(random_);  // some are negative
      m.scales.push_back(to_bfloat16(s));
      m.biases.push_back(
          to_bfloat16(-s * float((1 << bits) / 2) * std::uniform_real_distribution<float>(0.8F, 1.2F)(random_)));
    }
    return m;
  }

  template <typename T>
  std::unique_ptr<Buffer> upload(const std::vector<T>& values) {
    auto buffer = device_->allocate(std::max<std::size_t>(1, values.size()) * sizeof(T));
    device_->write(*buffer, 0, std::as_bytes(std::span(values)));
    return buffer;
  }
  MatrixBuffers upload(const Matrix& m) { return {upload(m.codes), upload(m.scales), upload(m.biases)}; }
  template <typename T>
  std::vector<T> download(const Buffer& buffer, std::size_t count, std::size_t offset = 0) {
    std::vector<T> values(count);
    device_->read(buffer, offset, std::as_writable_bytes(std::span(values)));
    return values;
  }

  /// Largest difference over the largest expected magnitude; infinite when a value is not a number.
  template <typename T>
  static double error(std::span<const T> found, std::span<const double> expected) {
    EXPECT_EQ(found.size(), expected.size());
    double worst = 0, scale = 1e-30;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double difference = std::abs(double(found[i]) - expected[i]);
      worst = difference <= worst ? worst : std::isnan(difference) ? INFINITY : difference;
      scale = std::max(scale, std::abs(expected[i]));
    }
    return worst / scale;
  }
  template <typename T>
  static double error(const std::vector<T>& found, const Doubles& expected) {
    return error(std::span<const T>(found), std::span<const double>(expected));
  }

  static Doubles rms_norm(std::span<const float> x, std::span<const float> weight, double eps = 1e-6) {
    double squares = 0;
    for (const float value : x) squares += double(value) * value;
    const double scale = 1 / std::sqrt(squares / double(x.size()) + eps);
    Doubles y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * (weight.empty() ? 1.0 : double(weight[i]));
    return y;
  }

  std::unique_ptr<Device> device_;
  std::mt19937 random_{7};
};

inline std::string device_name(const testing::TestParamInfo<DeviceKind>& info) {
  return std::string(to_string(info.param));
}
#define LILY_KERNEL_TESTS(suite) \
  INSTANTIATE_TEST_SUITE_P(Devices, suite, testing::ValuesIn(lily::test::test_devices()), lily::test::device_name)

}  // namespace lily::test
