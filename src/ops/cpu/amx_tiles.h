// AMX, the matrix unit of Intel's server CPUs from Sapphire Rapids on. Its registers are tiles of up to 16 rows of 64
// bytes; one instruction multiplies 16 x 64 bytes by 64 x 16 bytes (Intel's manual for developers, volume 1, chapter on
// AMX). As text, since older compilers do not know it. LILY_EMULATED_AMX has plain loops instead: tests run everywhere.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lily::cpu {
#ifdef LILY_EMULATED_AMX
inline namespace emulated {
#endif

/// Two products of tiles, of one of which the sums can be stored while the other is being computed.
class AmxTiles {
 public:
  static constexpr std::int64_t kBytes = 1024;  // of a tile of 16 rows

#ifdef LILY_EMULATED_AMX
  explicit AmxTiles(std::int64_t rows) : rows_(rows) {}
#else
  /// Records and sums have `rows` rows, 16 at most. The thread's tiles are this object's while it lives.
  explicit AmxTiles(std::int64_t rows) {
    struct alignas(64) Configuration {
      std::uint8_t palette = 1;
      std::uint8_t start_row = 0;
      std::array<std::uint8_t, 14> reserved{};
      std::array<std::uint16_t, 16> row_bytes{};
      std::array<std::uint8_t, 16> rows{};
    } configuration;
    for (std::size_t tile = 0; tile < 6; ++tile) {  // sums 0 and 1, records 2 and 3, codes 4 and 5
      configuration.row_bytes[tile] = 64;
      configuration.rows[tile] = tile < 4 ? static_cast<std::uint8_t>(rows) : 16;
    }
    asm volatile("ldtilecfg %0" : : "m"(configuration));
  }
  ~AmxTiles() {
    asm volatile("tilerelease");
  }
#endif
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  /// Product kIndex: sums[i][j] = records[i][0] * codes[0][j][0] + ... + records[i][63] * codes[15][j][3] for records
  /// [rows, 64] of signed bytes and codes [16, 16, 4] of unsigned ones.
  template <int kIndex>
  void start(const std::uint8_t* records, const std::uint8_t* codes);
  /// Its sums [rows, 16].
  template <int kIndex>
  void store(std::int32_t* sums);
#ifndef LILY_EMULATED_AMX
  /// Four products of 16 x 64 by 64 x 16 bytes and nothing else, for the machine's limit; `rows` is 16.
  static void multiply_only() {
    asm volatile(
        "tdpbsud %tmm5, %tmm4, %tmm0\n\ttdpbsud %tmm5, %tmm4, %tmm1\n\t"
        "tdpbsud %tmm5, %tmm4, %tmm2\n\ttdpbsud %tmm5, %tmm4, %tmm3");
  }
#endif

 private:
#ifdef LILY_EMULATED_AMX
  std::int64_t rows_;
  std::array<std::array<std::int32_t, 256>, 2> sums_{};
#else
  static constexpr std::int64_t kStride = 64;
#endif
};

#ifdef LILY_EMULATED_AMX

template <int kIndex>
void AmxTiles::start(const std::uint8_t* records, const std::uint8_t* codes) {
  for (std::int64_t i = 0; i < rows_; ++i) {
    for (std::int64_t j = 0; j < 16; ++j) {
      std::int32_t sum = 0;
      for (std::int64_t k = 0; k < 64; ++k) {
        sum += static_cast<std::int8_t>(records[i * 64 + k]) * codes[k / 4 * 64 + 4 * j + k % 4];
      }
      sums_[kIndex][static_cast<std::size_t>(i * 16 + j)] = sum;
    }
  }
}
template <int kIndex>
void AmxTiles::store(std::int32_t* sums) {
  for (std::int64_t i = 0; i < rows_ * 16; ++i) sums[i] = sums_[kIndex][static_cast<std::size_t>(i)];
}

}  // namespace emulated

#else

template <int kIndex>
void AmxTiles::start(const std::uint8_t* records, const std::uint8_t* codes) {
  if constexpr (kIndex == 0) {
    asm volatile(
        "tilezero %%tmm0\n\ttileloadd (%0,%2,1), %%tmm2\n\ttileloadd (%1,%2,1), %%tmm4\n\t"
        "tdpbsud %%tmm4, %%tmm2, %%tmm0"
        :
        : "r"(records), "r"(codes), "r"(kStride)
        : "memory");
  } else {
    asm volatile(
        "tilezero %%tmm1\n\ttileloadd (%0,%2,1), %%tmm3\n\ttileloadd (%1,%2,1), %%tmm5\n\t"
        "tdpbsud %%tmm5, %%tmm3, %%tmm1"
        :
        : "r"(records), "r"(codes), "r"(kStride)
        : "memory");
  }
}
template <int kIndex>
void AmxTiles::store(std::int32_t* sums) {
  if constexpr (kIndex == 0) {
    asm volatile("tilestored %%tmm0, (%0,%1,1)" : : "r"(sums), "r"(kStride) : "memory");
  } else {
    asm volatile("tilestored %%tmm1, (%0,%1,1)" : : "r"(sums), "r"(kStride) : "memory");
  }
}

#endif

}  // namespace lily::cpu
