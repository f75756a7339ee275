// The random numbers of a synthetic checkpoint. Each value is a function of seed, tensor name and position alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "checkpoint/layout.h"

namespace lily {

/// A stream of random words that can be entered anywhere (SplitMix64 over a counter).
class CounterRandom {
 public:
  CounterRandom(std::uint64_t seed, std::string_view name);
  std::uint64_t word(std::uint64_t index) const;
  double uniform(std::uint64_t index) const;  // [0, 1)
  double normal(std::uint64_t index) const;   // mean 0, variance 1

 private:
  std::uint64_t key_;
};

/// Fill a stretch of one tensor of `entry`, from byte `offset` (a multiple of 8) on.
void fill_codes(const LayoutEntry& entry, std::uint64_t seed, std::uint64_t offset, std::span<std::byte> out);
void fill_scales(const LayoutEntry& entry, std::uint64_t seed, std::uint64_t offset, std::span<std::byte> out);
void fill_biases(const LayoutEntry& entry, std::uint64_t seed, std::uint64_t offset, std::span<std::byte> out);
void fill_plain(const LayoutEntry& entry, std::uint64_t seed, std::uint64_t offset, std::span<std::byte> out);

}  // namespace lily
