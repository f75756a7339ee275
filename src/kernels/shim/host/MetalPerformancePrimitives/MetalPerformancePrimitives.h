// Metal 4's tensor operations for the emulator: the one shape that tile.h uses, 16 x 32 x 16 with the right operand
// transposed, in the register layout that MLX and uzu rely on (tile.h says which).
#pragma once

#include "device/emulated/lane.h"

namespace metal {
struct execution_simdgroup {};
}  // namespace metal

namespace mpp::tensor_ops {

struct matmul2d_descriptor {
  enum class mode { multiply, multiply_accumulate };
  int m, n, k;
  bool transpose_left, transpose_right, relaxed_precision;
  mode how;
  constexpr matmul2d_descriptor(int rows, int cols, int depth, bool left, bool right, bool relaxed, mode multiply)
      : m(rows),
        n(cols),
        k(depth),
        transpose_left(left),
        transpose_right(right),
        relaxed_precision(relaxed),
        how(multiply) {}
};

template <class T, int N>
struct cooperative_tensor {
  T e[N];
  T& operator[](int i) { return e[i]; }
};

inline int block_row(unsigned lane, int i) {
  const unsigned quad = lane >> 2;
  return static_cast<int>((quad & 4) | (lane >> 1 & 3)) + (i >> 2) * 8;
}
inline int block_col(unsigned lane, int i) {
  const unsigned quad = lane >> 2;
  return static_cast<int>((quad & 2) | (lane & 1)) * 4 + (i & 3);
}

template <matmul2d_descriptor d, class Scope>
struct matmul2d {
  static_assert(d.m == 16 && d.n == 32 && d.k == 16 && !d.transpose_left && d.transpose_right);
  template <class A, class, class>
  cooperative_tensor<A, 8> get_left_input_cooperative_tensor() {
    return {};
  }
  template <class, class B, class>
  cooperative_tensor<B, 16> get_right_input_cooperative_tensor() {
    return {};
  }
  template <class, class, class C>
  cooperative_tensor<C, 16> get_destination_cooperative_tensor() {
    return {};
  }
  template <class A, class B>
  void run(cooperative_tensor<A, 8>& a, cooperative_tensor<B, 16>& b, cooperative_tensor<float, 16>& c,
           const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    float left[16][16], right[32][16];
    for (int i = 0; i < 8; ++i) {
      const std::uint64_t* lanes = lily::emulated::exchange(metal::lane_bits(a[i]), {file, line});
      for (unsigned j = 0; j < 32; ++j) left[block_row(j, i)][block_col(j, i)] = float(metal::lane_value<A>(lanes[j]));
    }
    for (int i = 0; i < 16; ++i) {
      const std::uint64_t* lanes = lily::emulated::exchange(metal::lane_bits(b[i]), {file, line});
      for (unsigned j = 0; j < 32; ++j)
        right[(i >> 3) * 16 + block_row(j, i & 7)][block_col(j, i & 7)] = float(metal::lane_value<B>(lanes[j]));
    }
    const unsigned lane = lily::emulated::current_lane().lane;
    for (int i = 0; i < 16; ++i)
      for (int k = 0; k < 16; ++k)
        c[i] += left[block_row(lane, i & 7)][k] * right[(i >> 3) * 16 + block_col(lane, i & 7)][k];
  }
};

}  // namespace mpp::tensor_ops
