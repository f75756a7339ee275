#include "checkpoint/synthetic_values.h"

#include <cmath>
#include <cstring>
#include <numbers>

#include "support/bfloat16.h"

namespace lily {
namespace {

std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// Standard deviation of the weights times sqrt(in): how much a matrix amplifies a normalised input.
double gain(std::string_view name, std::int64_t in) {
  // An embedding row is itself the input of the first layer.
  if (name.starts_with("embed_tokens")) return std::sqrt(static_cast<double>(in));
  if (name.starts_with("lm_head")) return 2.0;
  // What a sublayer adds to the residual stream: 80 such terms stay of order one.
  if (name.ends_with("out_proj") || name.ends_with("o_proj") || name.ends_with("down_proj")) return 0.5;
  return 1.0;
}

double levels(const LayoutEntry& entry) {
  return static_cast<double>((1 << entry.bits) - 1);
}

/// Codes are uniform over all levels, so a group's standard deviation is scale * sqrt((2^(2 bits) - 1) / 12).
BFloat16 group_scale(const LayoutEntry& entry, const CounterRandom& random, std::uint64_t group) {
  const auto in = static_cast<double>(entry.shape.back());
  const double deviation = gain(entry.name, entry.shape.back()) / std::sqrt(in);
  const double steps = std::ldexp(1.0, 2 * entry.bits) - 1;
  const double spread = 0.75 + 0.5 * random.uniform(group);
  const double sign = (random.word(group) & 1U) != 0 ? 1.0 : -1.0;
  return to_bfloat16(static_cast<float>(sign * spread * deviation / std::sqrt(steps / 12)));
}

double softplus_inverse(double y) {
  return y + std::log(-std::expm1(-y));
}

double plain_value(const LayoutEntry& entry, const CounterRandom& random, std::uint64_t index) {
  const std::string_view name = entry.name;
  if (name.ends_with("conv1d.weight")) return 0.5 * random.normal(index);
  // Decay rates from 1 to 16 and time steps from 0.001 to 0.1, as the architecture is initialised.
  if (name.ends_with("A_log")) return std::log(1 + 15 * random.uniform(index));
  if (name.ends_with("dt_bias")) return softplus_inverse(1e-3 * std::pow(100.0, random.uniform(index)));
  return 1 + 0.1 * random.normal(index);  // norms
}

template <typename Value>
void fill_bfloat16(std::uint64_t offset, std::span<std::byte> out, Value value) {
  const std::uint64_t first = offset / sizeof(BFloat16);
  for (std::size_t i = 0; i < out.size() / sizeof(BFloat16); ++i) {
    const BFloat16 rounded = value(first + i);
    std::memcpy(out.data() + i * sizeof(BFloat16), &rounded, sizeof(rounded));
  }
}

}  // namespace

CounterRandom::CounterRandom(std::uint64_t seed, std::string_view name) : key_(mix(seed)) {
  for (const char c : name) key_ = mix(key_ ^ static_cast<unsigned char>(c));
}

std::uint64_t CounterRandom::word(std::uint64_t index) const {
  return mix(key_ + (index + 1) * 0x9e3779b97f4a7c15U);
}

double CounterRandom::uniform(std::uint64_t index) const {
  return std::ldexp(static_cast<double>(word(index) >> 11), -53);
}

double CounterRandom::normal(std::uint64_t index) const {
  const double radius = std::sqrt(-2 * std::log(1 - uniform(2 * index)));
  return radius * std::cos(2 * std::numbers::pi * uniform(2 * index + 1));
}

void fill_codes(const LayoutEntry& entry, std::uint64_t seed, std::uint64_t offset, std::span<std::byte> out) {
  const CounterRandom random(seed, entry.name + ".weight");
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  for (std::size_t i = 0; i < out.size(); i += kWord) {
    const std::uint64_t word = random.word((offset + i) / kWord);
    std::memcpy(out.data() + i, &word, std::min(kWord, out.size() - i));
  }
}

void fill_scales(const LayoutEntry& entry, std::uint64_t seed, std::uint64_t offset, std::span<std::byte> out) {
  const CounterRandom random(seed, entry.name + ".scales");
  fill_bfloat16(offset, out, [&](std::uint64_t group) { return group_scale(entry, random, group); });
}

void fill_biases(const LayoutEntry& entry, std::uint64_t seed, std::uint64_t offset, std::span<std::byte> out) {
  const CounterRandom random(seed, entry.name + ".scales");
  fill_bfloat16(offset, out, [&](std::uint64_t group) {
    const auto scale = static_cast<double>(static_cast<float>(group_scale(entry, random, group)));
    return to_bfloat16(static_cast<float>(-scale * levels(entry) / 2));
  });
}

void fill_plain(const LayoutEntry& entry, std::uint64_t seed, std::uint64_t offset, std::span<std::byte> out) {
  const CounterRandom random(seed, entry.name);
  fill_bfloat16(offset, out, [&](std::uint64_t index) {
    return to_bfloat16(static_cast<float>(plain_value(entry, random, index)));
  });
}

}  // namespace lily
