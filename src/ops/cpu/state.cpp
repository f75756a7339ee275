#include "ops/cpu/state.h"

#include <algorithm>
#include <cstring>

#include "support/error.h"

namespace lily::cpu {

CpuState::CpuState(const ModelConfig& config, std::int64_t capacity, bool float16)
    : capacity_(capacity),
      linear_layers_(config.num_linear_layers()),
      value_heads_(config.linear_num_value_heads),
      head_floats_(config.linear_key_head_dim * config.linear_value_head_dim),
      conv_floats_((config.linear_conv_kernel_dim - 1) * config.conv_channels()),
      kv_heads_(config.num_key_value_heads),
      head_dim_(config.head_dim),
      element_bytes_(float16 ? 2 : 4) {
  LILY_CHECK(capacity > 0);
  recurrent_ = Pages(recurrent_bytes());
  const std::int64_t layer_bytes = 2 * kv_heads_ * capacity * row_bytes();
  for (std::int64_t i = 0; i < config.num_attention_layers(); ++i) {
    kv_.emplace_back(static_cast<std::size_t>(layer_bytes));
  }
}

std::string CpuState::layout() const {
  return float16() ? "cpu-float16" : "cpu-float32";
}

std::size_t CpuState::recurrent_bytes() const {
  return static_cast<std::size_t>(linear_layers_ * layer_floats()) * sizeof(float);
}

std::size_t CpuState::kv_bytes_per_token() const {
  return kv_.size() * static_cast<std::size_t>(2 * kv_heads_ * row_bytes());
}

void CpuState::reset() {
  std::memset(recurrent_.data(), 0, recurrent_bytes());
}

void CpuState::read_recurrent(std::span<std::byte> out) const {
  LILY_CHECK(out.size() == recurrent_bytes());
  std::memcpy(out.data(), recurrent_.data(), out.size());
}

void CpuState::write_recurrent(std::span<const std::byte> in) {
  LILY_CHECK(in.size() == recurrent_bytes());
  std::memcpy(recurrent_.data(), in.data(), in.size());
}

void CpuState::read_kv(std::int64_t begin, std::int64_t end, std::span<std::byte> out) const {
  LILY_CHECK(0 <= begin && begin <= end && end <= capacity_);
  LILY_CHECK(out.size() == static_cast<std::size_t>(end - begin) * kv_bytes_per_token());
  const auto row = static_cast<std::size_t>(row_bytes());
  std::byte* to = out.data();
  for (std::int64_t token = begin; token < end; ++token) {
    for (std::size_t layer = 0; layer < kv_.size(); ++layer) {
      for (std::int64_t i = 0; i < 2 * kv_heads_; ++i, to += row) {
        std::memcpy(to, rows(static_cast<std::int64_t>(layer), i) + token * row_bytes(), row);
      }
    }
  }
}

void CpuState::write_kv(std::int64_t begin, std::int64_t end, std::span<const std::byte> in) {
  LILY_CHECK(0 <= begin && begin <= end && end <= capacity_);
  LILY_CHECK(in.size() == static_cast<std::size_t>(end - begin) * kv_bytes_per_token());
  const auto row = static_cast<std::size_t>(row_bytes());
  const std::byte* from = in.data();
  for (std::int64_t token = begin; token < end; ++token) {
    for (std::size_t layer = 0; layer < kv_.size(); ++layer) {
      for (std::int64_t i = 0; i < 2 * kv_heads_; ++i, from += row) {
        std::memcpy(rows(static_cast<std::int64_t>(layer), i) + token * row_bytes(), from, row);
      }
    }
  }
}

}  // namespace lily::cpu
