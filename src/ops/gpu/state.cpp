#include "ops/gpu/state.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/kernels.h"

namespace lily::gpu {
namespace {

constexpr std::int64_t kFirstRoom = 1024;  // tokens
constexpr std::int64_t kRingSlots = 4;
constexpr std::int64_t kChunk = 8;  // dimensions that always lie together (kernels/attention.h)

}  // namespace

State::State(Device& device, const ModelConfig& config, std::int64_t capacity, std::shared_ptr<Buffer> turns,
             bool coalesced)
    : device_(device),
      capacity_(capacity),
      heads_(config.num_key_value_heads),
      head_dim_(config.head_dim),
      coalesced_(coalesced),
      linear_layers_(static_cast<std::size_t>(config.num_linear_layers())),
      attention_layers_(static_cast<std::size_t>(config.num_attention_layers())),
      state_floats_(static_cast<std::size_t>(config.value_rows() * config.linear_key_head_dim)),
      ring_floats_(static_cast<std::size_t>(kRingSlots * config.conv_channels())),
      kv_row_bytes_(static_cast<std::size_t>(config.kv_rows()) * 2),
      step_(device.allocate(sizeof(StepState))),
      turns_(std::move(turns)) {
  LILY_CHECK(capacity > 0);
  recurrent_ = device.allocate(std::max<std::size_t>(recurrent_bytes(), 4));
  reserve(coalesced ? std::min(capacity, kFirstRoom) : capacity);
  reset();
}

State::~State() {
  device_.wait(device_.submit());
}  // launches may still use the memory

std::string State::layout() const {
  return "gpu-float32-bf16";
}

std::size_t State::recurrent_bytes() const {
  return linear_layers_ * layer_floats() * sizeof(float);
}

std::size_t State::kv_bytes_per_token() const {
  return attention_layers_ * 2 * kv_row_bytes_;
}

void State::reset() {
  const auto words = static_cast<uint>(recurrent_->size() / 4);
  device_.dispatch(kernels::zero_words, {.groups = {std::min(1024U, (words + 255) / 256)}}, recurrent_->view<uint>(),
                   words);
}

void State::read_recurrent(std::span<std::byte> out) const {
  LILY_CHECK(out.size() == recurrent_bytes());
  device_.read(*recurrent_, 0, out);
}

void State::write_recurrent(std::span<const std::byte> in) {
  LILY_CHECK(in.size() == recurrent_bytes());
  device_.write(*recurrent_, 0, in);
}

State::Strides State::strides() const {
  if (coalesced_) return {heads_ * head_dim_, head_dim_, kChunk};
  return {kChunk, head_dim_ * room_, kChunk * room_};
}

void State::copy_chunks(const Range& range, std::int64_t begin, std::int64_t end, std::span<std::byte> rows,
                        bool to_host) const {
  constexpr std::size_t kBytes = kChunk * 2;
  std::vector<std::byte> all(range.bytes);
  device_.read(*range.buffer, range.offset, all);
  const std::int64_t chunks = heads_ * head_dim_ / kChunk;
  for (std::int64_t token = begin; token < end; ++token) {
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      std::byte* there = all.data() + static_cast<std::size_t>(chunk * room_ + token) * kBytes;
      std::byte* here = rows.data() + static_cast<std::size_t>((token - begin) * chunks + chunk) * kBytes;
      std::memcpy(to_host ? here : there, to_host ? there : here, kBytes);
    }
  }
  if (!to_host) device_.write(*kv_, range.offset, all);
}

void State::read_kv(std::int64_t begin, std::int64_t end, std::span<std::byte> out) const {
  const auto tokens = static_cast<std::size_t>(end - begin);
  LILY_CHECK(0 <= begin && begin <= end && end <= capacity_ && out.size() == tokens * kv_bytes_per_token());
  LILY_CHECK(end <= room_);
  for (std::size_t i = 0; tokens > 0 && i < 2 * attention_layers_; ++i) {
    const Range from = rows(static_cast<std::int64_t>(i / 2), i % 2);
    const std::span<std::byte> to = out.subspan(i * tokens * kv_row_bytes_, tokens * kv_row_bytes_);
    if (coalesced_) {
      device_.read(*kv_, from.offset + static_cast<std::size_t>(begin) * kv_row_bytes_, to);
    } else {
      copy_chunks(from, begin, end, to, true);
    }
  }
}

void State::write_kv(std::int64_t begin, std::int64_t end, std::span<const std::byte> in) {
  const auto tokens = static_cast<std::size_t>(end - begin);
  LILY_CHECK(0 <= begin && begin <= end && end <= capacity_ && in.size() == tokens * kv_bytes_per_token());
  reserve(end);
  for (std::size_t i = 0; tokens > 0 && i < 2 * attention_layers_; ++i) {
    const Range to = rows(static_cast<std::int64_t>(i / 2), i % 2);
    const std::span<const std::byte> from = in.subspan(i * tokens * kv_row_bytes_, tokens * kv_row_bytes_);
    if (coalesced_) {
      device_.write(*kv_, to.offset + static_cast<std::size_t>(begin) * kv_row_bytes_, from);
    } else {
      std::vector<std::byte> rows(from.begin(), from.end());
      copy_chunks(to, begin, end, rows, false);
    }
  }
}

void State::reserve(std::int64_t tokens) {
  LILY_CHECK(tokens <= capacity_);
  if (tokens <= room_ || attention_layers_ == 0) return;
  const std::int64_t old_room = room_;
  room_ = std::min(capacity_, std::max({tokens, 2 * old_room, kFirstRoom}));
  const std::unique_ptr<Buffer> old =
      std::exchange(kv_, device_.allocate(2 * attention_layers_ * static_cast<std::size_t>(room_) * kv_row_bytes_));
  ++cache_version_;
  if (old == nullptr) return;
  const std::size_t bytes = static_cast<std::size_t>(old_room) * kv_row_bytes_;
  for (std::size_t i = 0; i < 2 * attention_layers_; ++i) {
    const Range to = rows(static_cast<std::int64_t>(i / 2), i % 2);
    const auto words = static_cast<uint>(bytes / 4);
    device_.dispatch(kernels::copy_words, {.groups = {std::min(1024U, (words + 255) / 256)}},
                     old->view<uint>(i * bytes).part(0, words), to.buffer->view<uint>(to.offset).part(0, words), words);
  }
  device_.wait(device_.submit());  // the old memory goes now
}

View<float> State::delta_state(std::int64_t layer) const {
  return recurrent_->view<float>().part(static_cast<std::size_t>(layer) * layer_floats(), state_floats_);
}

View<float> State::conv_ring(std::int64_t layer) const {
  return recurrent_->view<float>().part(static_cast<std::size_t>(layer) * layer_floats() + state_floats_, ring_floats_);
}

State::Range State::rows(std::int64_t layer, std::size_t which) const {
  const std::size_t bytes = static_cast<std::size_t>(room_) * kv_row_bytes_;
  return {kv_.get(), (static_cast<std::size_t>(layer) * 2 + which) * bytes, bytes};
}

std::vector<float> rotary_table(const ModelConfig& config, std::int64_t positions) {
  const std::int64_t pairs = config.rotary_dim / 2;
  std::vector<float> table;
  table.reserve(static_cast<std::size_t>(positions * config.rotary_dim));
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < pairs; ++i) {
    frequencies.push_back(
        std::pow(config.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(config.rotary_dim)));
  }
  for (std::int64_t position = 0; position < positions; ++position) {
    for (const double frequency : frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      table.push_back(static_cast<float>(std::cos(angle)));
      table.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return table;
}

}  // namespace lily::gpu
