// Metal 4's tensor operations as tools/msl_check sees them: the one shape that MLX and uzu run. The descriptor is a number
// here: class objects as template arguments need C++20, which clang's OpenCL mode does not have.
#pragma once

#include <metal_stdlib>

namespace metal {
struct execution_simdgroup {};
}  // namespace metal

namespace mpp {
namespace tensor_ops {

struct matmul2d_descriptor {
  enum class mode { multiply, multiply_accumulate };
};
constexpr int matmul2d_shape(int m, int n, int k, bool, bool, bool, matmul2d_descriptor::mode) {
  return m << 16 | n << 8 | k;
}
#define matmul2d_descriptor(...) matmul2d_shape(__VA_ARGS__)

template <class T, int N>
struct cooperative_tensor {
  T e[N];
  T& operator[](int i) { return e[i]; }
};

template <int shape, class Scope>
struct matmul2d {
  static constexpr int M = shape >> 16, N = shape >> 8 & 255, K = shape & 255;
  static_assert(M == 16 && N == 32 && K == 16, "the shape that tile.h uses");
  template <class A, class B, class C>
  cooperative_tensor<A, M * K / 32> get_left_input_cooperative_tensor() {
    return {};
  }
  template <class A, class B, class C>
  cooperative_tensor<B, N * K / 32> get_right_input_cooperative_tensor() {
    return {};
  }
  template <class L, class R, class C>
  cooperative_tensor<C, M * N / 32> get_destination_cooperative_tensor() {
    return {};
  }
  template <class L, class R, class D>
  void run(L&, R&, D&) {}
};

}  // namespace tensor_ops
}  // namespace mpp
