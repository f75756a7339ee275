// What GpuOps keeps behind the handles of ops.h.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "device/device.h"
#include "ops/ops.h"

namespace lily::gpu {

/// Memory that waits for the launches that may use it before it goes.
std::shared_ptr<Buffer> waiting_buffer(Device& device, std::unique_ptr<Buffer> buffer);

/// A quantised matrix, or a stack of them one after another, in the checkpoint's layout.
struct Matrix {
  std::shared_ptr<const void> owner;  // of what the buffers may map: QuantizedMatrix::owner
  std::shared_ptr<Buffer> codes, scales, biases;
  std::int64_t out = 0;  // rows of one matrix of the stack
  std::int64_t in = 0;
  int bits = 4;
  std::size_t bytes() const { return codes->size() + scales->size() + biases->size(); }
};

struct MatrixStorage : Storage {
  Matrix matrix;
};

struct Floats : Storage {
  std::shared_ptr<Buffer> values;
};

struct Experts : Storage {
  Matrix gate, up, down;  // [experts, ...]
  Matrix shared_gate, shared_up, shared_down;
  std::int64_t count = 0;
};

/// Memory that goes back to where it came from when its last user is gone. The device runs launches in order, so it can
/// be given out again at once.
class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  explicit BufferPool(Device& device) : device_(device) {}
  std::shared_ptr<Buffer> take(std::size_t bytes);
  /// All that was ever given out and has come back.
  std::size_t bytes() const { return bytes_; }

 private:
  Device& device_;
  std::multimap<std::size_t, std::unique_ptr<Buffer>> free_;
  std::size_t bytes_ = 0;
};

enum class Format { kFloat32, kBFloat16 };

struct Activations : Storage {
  std::shared_ptr<Buffer> buffer;  // none before the first op that writes
  Format format = Format::kFloat32;
  bool operand_order = false;  // kernels/operand.h
  /// The values are the delta rule's y, and its gated norm is still to be applied: the op that reads them does it.
  std::shared_ptr<Activations> gates;  // z is in it,
  std::size_t gates_offset = 0;        // from this byte on
  std::shared_ptr<const Floats> norm;
};

}  // namespace lily::gpu
