// Shorthand for launching kernels on what GpuOps stores. Includes the kernels: MSL's types become global names.
#pragma once

#include "kernels/kernels.h"
#include "ops/gpu/ops_impl.h"

namespace lily::gpu {

inline uint u32(std::int64_t value) {
  return static_cast<uint>(value);
}
inline std::size_t size(std::int64_t value) {
  return static_cast<std::size_t>(value);
}

/// Threadgroups for `count` things, `each` a threadgroup.
inline unsigned groups_of(std::int64_t count, std::int64_t each) {
  return static_cast<unsigned>((count + each - 1) / each);
}

struct MatrixViews {
  View<const uint> codes;
  View<const bfloat> scales, biases;
};

inline MatrixViews views(const Matrix& m) {
  return {m.codes->view<uint>(), m.scales->view<bfloat>(), m.biases->view<bfloat>()};
}

inline View<const float> values(const Vector& vector) {
  return floats_of(vector).values->view<float>();
}

/// What products of many rows read instead of the codes, if GpuOptions::dequantise_in_products is off.
struct ExpandedMatrix {
  std::shared_ptr<Buffer> weights;
  MatrixViews views;
};

inline CacheStrides cache_strides(const State& state) {
  const State::Strides strides = state.strides();
  return {u32(strides.token), u32(strides.head), u32(strides.chunk)};
}

inline View<bfloat> cache_view(const State::Range& range) {
  return range.buffer->view<bfloat>(range.offset).part(0, range.bytes / 2);
}

}  // namespace lily::gpu
