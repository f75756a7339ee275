// One timeline's memory on a GPU.
//
// Recurrent, per gated-delta layer, float32:
//     S [num_value_heads][value_head_dim][key_head_dim], then the ring of conv inputs [4][conv_channels]: the input of
//     position p stands in slot p % 4.
// KV cache, bf16, per attention layer: keys, then values, each [room][num_key_value_heads][head_dim]. It grows by
// doubling. Copies to the host are [layer][keys, values][token][head][head_dim]. To measure what that order brings
// there is another (GpuOptions::coalesced_cache): [num_key_value_heads][head_dim / 8][room][8], of full size at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "device/device.h"
#include "model/config.h"
#include "ops/ops.h"

namespace lily::gpu {

class State final : public SequenceState {
 public:
  /// `turns`: the rotary table for at least `capacity` positions.
  State(Device& device, const ModelConfig& config, std::int64_t capacity, std::shared_ptr<Buffer> turns,
        bool coalesced = true);
  ~State() override;

  std::string layout() const override;
  std::size_t recurrent_bytes() const override;
  std::size_t kv_bytes_per_token() const override;
  void reset() override;
  void read_recurrent(std::span<std::byte> out) const override;
  void write_recurrent(std::span<const std::byte> in) override;
  void read_kv(std::int64_t begin, std::int64_t end, std::span<std::byte> out) const override;
  void write_kv(std::int64_t begin, std::int64_t end, std::span<const std::byte> in) override;

  /// Room for `tokens` tokens; keeps what is there. Changes cache_version() when the cache moves.
  void reserve(std::int64_t tokens);
  int cache_version() const { return cache_version_; }

  View<float> delta_state(std::int64_t layer) const;
  View<float> conv_ring(std::int64_t layer) const;
  /// [room][num_key_value_heads][head_dim] bf16, as raw views of Buffer: kernels name the type.
  struct Range {
    const Buffer* buffer;
    std::size_t offset;
    std::size_t bytes;
  };
  Range keys(std::int64_t layer) const { return rows(layer, 0); }
  Range values(std::int64_t layer) const { return rows(layer, 1); }
  /// How many values lie from one token, head and 8 dimensions to the next.
  struct Strides {
    std::int64_t token, head, chunk;
  };
  Strides strides() const;
  /// StepState. Who moves it on the device forgets placed_at().
  Buffer& step() const { return *step_; }
  std::int64_t placed_at() const { return placed_at_; }
  void place_at(std::int64_t position) { placed_at_ = position; }
  const Buffer& turns() const { return *turns_; }
  std::int64_t capacity() const { return capacity_; }

 private:
  std::size_t layer_floats() const { return state_floats_ + ring_floats_; }
  Range rows(std::int64_t layer, std::size_t which) const;
  /// Between one Range and rows as they are on the host, tokens [begin, end).
  void copy_chunks(const Range& range, std::int64_t begin, std::int64_t end, std::span<std::byte> rows,
                   bool to_host) const;

  Device& device_;
  std::int64_t capacity_, room_ = 0, heads_, head_dim_;
  bool coalesced_;
  std::size_t linear_layers_, attention_layers_, state_floats_, ring_floats_, kv_row_bytes_;
  std::unique_ptr<Buffer> recurrent_, kv_, step_;
  std::shared_ptr<Buffer> turns_;
  int cache_version_ = 0;
  std::int64_t placed_at_ = -1;  // position that the host knows to stand in step_
};

/// [positions][rotary_dim / 2] pairs of cosine and sine.
std::vector<float> rotary_table(const ModelConfig& config, std::int64_t positions);

}  // namespace lily::gpu
