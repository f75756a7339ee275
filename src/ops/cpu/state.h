// One timeline's memory on the CPU.
//
// Recurrent, per gated-delta layer, float32:
//     S [num_value_heads][key_head_dim][value_head_dim], then conv inputs [kernel - 1][conv_channels], oldest first.
// KV cache, per attention layer, float16 or float32: keys, then values, each [num_key_value_heads][capacity][head_dim];
// the pages are committed as tokens come. Copies to the host are by token: [token][layer][keys,
// values][head][head_dim].
#pragma once

#include <vector>

#include "model/config.h"
#include "ops/cpu/memory.h"
#include "ops/ops.h"

namespace lily::cpu {

class CpuState final : public SequenceState {
 public:
  CpuState(const ModelConfig& config, std::int64_t capacity, bool float16);

  std::string layout() const override;
  std::size_t recurrent_bytes() const override;
  std::size_t kv_bytes_per_token() const override;
  void reset() override;
  void read_recurrent(std::span<std::byte> out) const override;
  void write_recurrent(std::span<const std::byte> in) override;
  void read_kv(std::int64_t begin, std::int64_t end, std::span<std::byte> out) const override;
  void write_kv(std::int64_t begin, std::int64_t end, std::span<const std::byte> in) override;

  std::int64_t capacity() const { return capacity_; }
  float* delta_state(std::int64_t layer, std::int64_t value_head) const {
    return recurrent_.as<float>() + layer * layer_floats() + value_head * head_floats_;
  }
  float* conv_state(std::int64_t layer) const {
    return recurrent_.as<float>() + layer * layer_floats() + value_heads_ * head_floats_;
  }
  bool float16() const { return element_bytes_ == 2; }
  /// Rows [capacity][head_dim] of float16 (as its bits) or float32.
  std::byte* keys(std::int64_t layer, std::int64_t head) const { return rows(layer, head); }
  std::byte* values(std::int64_t layer, std::int64_t head) const { return rows(layer, kv_heads_ + head); }
  std::int64_t row_bytes() const { return head_dim_ * element_bytes_; }

 private:
  std::int64_t layer_floats() const { return value_heads_ * head_floats_ + conv_floats_; }
  std::byte* rows(std::int64_t layer, std::int64_t index) const {
    return kv_[static_cast<std::size_t>(layer)].data() + index * capacity_ * row_bytes();
  }

  std::int64_t capacity_;
  std::int64_t linear_layers_;
  std::int64_t value_heads_;
  std::int64_t head_floats_;  // of S, one value head
  std::int64_t conv_floats_;
  std::int64_t kv_heads_;
  std::int64_t head_dim_;
  std::int64_t element_bytes_;
  Pages recurrent_;
  std::vector<Pages> kv_;
};

}  // namespace lily::cpu
