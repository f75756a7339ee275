#include "checkpoint/aligned.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>

#include "support/error.h"

namespace lily {
namespace {

constexpr std::size_t kCacheLine = 64;

std::size_t rounded_up(std::size_t size) {
  return (size + kCacheLine - 1) / kCacheLine * kCacheLine;
}

float half_to_float(std::uint16_t half) {
  const float sign = (half & 0x8000U) != 0 ? -1.0F : 1.0F;
  const int exponent = (half >> 10) & 0x1f;
  const auto mantissa = static_cast<float>(half & 0x3ffU);
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  if (exponent == 31) {
    return mantissa == 0 ? sign * std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  }
  return sign * std::ldexp(mantissa + 1024, exponent - 25);
}

template <typename T>
T read_as(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

}  // namespace

AlignedParts::AlignedParts(std::array<std::span<const std::byte>, 3> parts) : parts_(parts) {
  bool aligned = true;
  std::size_t total = 0;
  for (const auto& part : parts_) {
    aligned = aligned && reinterpret_cast<std::uintptr_t>(part.data()) % alignof(std::uint32_t) == 0;
    total += rounded_up(part.size());
  }
  if (aligned) return;
  constexpr auto kAlignment = std::align_val_t{kCacheLine};
  auto* copy = static_cast<std::byte*>(::operator new(total, kAlignment));
  owner_ = std::shared_ptr<const void>(
      copy, [](const void* memory) { ::operator delete(const_cast<void*>(memory), kAlignment); });
  for (auto& part : parts_) {
    std::memcpy(copy, part.data(), part.size());
    part = {copy, part.size()};
    copy += rounded_up(part.size());
  }
}

std::vector<float> widen(const TensorView& tensor) {
  const std::size_t width = tensor.dtype == DType::kF32 ? sizeof(float) : sizeof(BFloat16);
  std::vector<float> values(tensor.bytes.size() / width);
  const std::byte* at = tensor.bytes.data();
  for (float& value : values) {
    switch (tensor.dtype) {
      case DType::kF32:
        value = read_as<float>(at);
        break;
      case DType::kF16:
        value = half_to_float(read_as<std::uint16_t>(at));
        break;
      default:
        LILY_CHECK(tensor.dtype == DType::kBF16);
        value = static_cast<float>(read_as<BFloat16>(at));
    }
    at += width;
  }
  return values;
}

}  // namespace lily
