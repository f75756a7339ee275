// A simdgroup's M x N block of a matrix product in float32, with bf16 operands in threadgroup memory:
//
//   zero();  mma<K>(a, lda, b, ldb, lane)  adds A[M][K] B[N][K]^T;  store(c, ldc, lane)  writes [M][N] to threadgroup
//   memory.
//
// M is a multiple of 16, N of 32, K of 16. Three bodies: CUDA's wmma; Metal 4's tensor operations (M5 and later, the
// second library, LILY_TENSOR_OPS); simdgroup_matrix (M1 to M4). The emulator runs the latter two.
#pragma once

#include "lily.h"

#if defined(__CUDACC__)

template <int M, int N>
struct Tile {
  static_assert(M % 16 == 0 && N % 32 == 0);
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> acc[M / 16][N / 16];

  METAL_FUNC void zero() {
    for (int m = 0; m < M / 16; ++m)
      for (int n = 0; n < N / 16; ++n) nvcuda::wmma::fill_fragment(acc[m][n], 0.f);
  }
  template <int K>
  METAL_FUNC void mma(const threadgroup bfloat* a, int lda, const threadgroup bfloat* b, int ldb, uint) {
    using namespace nvcuda::wmma;
    METAL_PRAGMA_UNROLL
    for (int k = 0; k < K; k += 16) {
      fragment<matrix_a, 16, 16, 16, bfloat, row_major> fa[M / 16];
      fragment<matrix_b, 16, 16, 16, bfloat, col_major> fb[N / 16];
      for (int m = 0; m < M / 16; ++m) load_matrix_sync(fa[m], a + m * 16 * lda + k, lda);
      for (int n = 0; n < N / 16; ++n) load_matrix_sync(fb[n], b + n * 16 * ldb + k, ldb);
      for (int m = 0; m < M / 16; ++m)
        for (int n = 0; n < N / 16; ++n) mma_sync(acc[m][n], fa[m], fb[n], acc[m][n]);
    }
  }
  METAL_FUNC void store(threadgroup float* c, int ldc, uint) {
    using namespace nvcuda::wmma;
    for (int m = 0; m < M / 16; ++m)
      for (int n = 0; n < N / 16; ++n) store_matrix_sync(c + m * 16 * ldc + n * 16, acc[m][n], ldc, mem_row_major);
  }
};

#elif defined(LILY_TENSOR_OPS)

#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>

// The operation is 16 x 32 x 16 with the right operand transposed. Its registers are 16 x 16 blocks; element i of a
// block in a lane stands at (row, col) below (Apple documents no layout; MLX and uzu use this one; `lily selftest`
// tells).
template <int M, int N>
struct Tile {
  static_assert(M % 16 == 0 && N % 32 == 0);
  float acc[M / 16][N / 32][16];

  METAL_FUNC static int row(uint lane, int i) {
    const uint quad = lane >> 2;
    return int((quad & 4) | ((lane >> 1) & 3)) + (i >> 2) * 8;
  }
  METAL_FUNC static int col(uint lane, int i) {
    const uint quad = lane >> 2;
    return int((quad & 2) | (lane & 1)) * 4 + (i & 3);
  }
  METAL_FUNC void zero() {
    for (int m = 0; m < M / 16; ++m)
      for (int n = 0; n < N / 32; ++n)
        for (int i = 0; i < 16; ++i) acc[m][n][i] = 0;
  }
  template <int K>
  METAL_FUNC void mma(const threadgroup bfloat* a, int lda, const threadgroup bfloat* b, int ldb, uint lane) {
    constexpr auto shape = mpp::tensor_ops::matmul2d_descriptor(
        16, 32, 16, false, true, true, mpp::tensor_ops::matmul2d_descriptor::mode::multiply_accumulate);
    mpp::tensor_ops::matmul2d<shape, metal::execution_simdgroup> op;
    auto left = op.template get_left_input_cooperative_tensor<bfloat, bfloat, float>();
    auto right = op.template get_right_input_cooperative_tensor<bfloat, bfloat, float>();
    auto sum = op.template get_destination_cooperative_tensor<decltype(left), decltype(right), float>();
    METAL_PRAGMA_UNROLL
    for (int m = 0; m < M / 16; ++m)
      for (int n = 0; n < N / 32; ++n) {
        for (int i = 0; i < 16; ++i) sum[i] = acc[m][n][i];
        for (int k = 0; k < K; k += 16) {
          for (int i = 0; i < 8; ++i) {
            const int r = row(lane, i), c = col(lane, i);
            left[i] = a[(m * 16 + r) * lda + k + c];
            right[i] = b[(n * 32 + r) * ldb + k + c];
            right[8 + i] = b[(n * 32 + 16 + r) * ldb + k + c];
          }
          op.run(left, right, sum);
        }
        for (int i = 0; i < 16; ++i) acc[m][n][i] = sum[i];
      }
  }
  METAL_FUNC void store(threadgroup float* c, int ldc, uint lane) {
    for (int m = 0; m < M / 16; ++m)
      for (int n = 0; n < N / 32; ++n)
        for (int i = 0; i < 16; ++i)
          c[(m * 16 + row(lane, i & 7)) * ldc + n * 32 + (i >> 3) * 16 + col(lane, i & 7)] = acc[m][n][i];
  }
};

#else

template <int M, int N>
struct Tile {
  static_assert(M % 16 == 0 && N % 32 == 0);
  simdgroup_matrix<float, 8, 8> acc[M / 8][N / 8];

  METAL_FUNC void zero() {
    for (int m = 0; m < M / 8; ++m)
      for (int n = 0; n < N / 8; ++n) acc[m][n] = simdgroup_matrix<float, 8, 8>(0.f);
  }
  template <int K>
  METAL_FUNC void mma(const threadgroup bfloat* a, int lda, const threadgroup bfloat* b, int ldb, uint) {
    METAL_PRAGMA_UNROLL
    for (int k = 0; k < K; k += 8) {
      simdgroup_matrix<bfloat, 8, 8> ma[M / 8], mb[N / 8];
      for (int m = 0; m < M / 8; ++m) simdgroup_load(ma[m], a + m * 8 * lda + k, ulong(lda));
      for (int n = 0; n < N / 8; ++n) simdgroup_load(mb[n], b + n * 8 * ldb + k, ulong(ldb), ulong2{0, 0}, true);
      for (int m = 0; m < M / 8; ++m)
        for (int n = 0; n < N / 8; ++n) simdgroup_multiply_accumulate(acc[m][n], ma[m], mb[n], acc[m][n]);
    }
  }
  METAL_FUNC void store(threadgroup float* c, int ldc, uint) {
    for (int m = 0; m < M / 8; ++m)
      for (int n = 0; n < N / 8; ++n) simdgroup_store(acc[m][n], c + m * 8 * ldc + n * 8, ulong(ldc));
  }
};

#endif
