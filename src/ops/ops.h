// The vocabulary of the forward pass: what a backend (CpuOps, GpuOps) must be able to do. Fused, named by mathematics;
// whether an op runs its one-row or its many-row kernel is decided inside, from the row count. forward.cpp is its only
// caller for compute. Activations are [rows, cols]; a row is one token. All accumulation, softmax, gates and recurrent
// state are float32.
//
// An Ops object and everything it made are used from one thread at a time. Work may be asynchronous: read() waits for
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "checkpoint/tensor_view.h"
#include "model/config.h"
#include "sampling/sampling_params.h"

namespace lily {

/// Memory that a backend owns. Each backend derives its own.
class Storage {
 public:
  Storage() = default;
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  virtual ~Storage() = default;
};

/// Activations on the device.
struct Tensor {
  std::shared_ptr<Storage> storage;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
};

/// A weight matrix [out, in] on the device, in whatever layout the backend likes to read.
struct Weight {
  std::shared_ptr<const Storage> storage;
  std::int64_t out = 0;
  std::int64_t in = 0;
};

/// Float weights on the device: norms, conv1d, A_log, dt_bias.
struct Vector {
  std::shared_ptr<const Storage> storage;
  std::int64_t size = 0;
};

/// gate, up and down of one MLP, or of a stack of experts.
struct MlpMatrices {
  QuantizedMatrix gate_proj;  // [experts, intermediate, hidden]
  QuantizedMatrix up_proj;    // [experts, intermediate, hidden]
  QuantizedMatrix down_proj;  // [experts, hidden, intermediate]
};

struct AttentionWeights {
  Vector input_layernorm;  // [hidden]
  Weight in_proj;          // q_proj | k_proj | v_proj: [attention_rows, hidden]
  Vector q_norm, k_norm;   // [head_dim]
  Weight o_proj;           // [hidden, num_attention_heads * head_dim]
};

struct GatedDeltaWeights {
  Vector input_layernorm;  // [hidden]
  Weight in_proj;          // in_proj_qkv | z | b | a: [linear_rows, hidden]
  Vector conv1d;           // [conv_channels, kernel], last tap = the current token
  Vector A_log, dt_bias;   // [value heads]
  Vector norm;             // [value head dim]
  Weight out_proj;         // [hidden, value_rows]
};

struct MoeWeights {
  Vector post_attention_layernorm;         // [hidden]
  Weight router;                           // mlp.gate | mlp.shared_expert_gate: [num_experts + 1, hidden], 8 bit
  std::shared_ptr<const Storage> experts;  // the stack (switch_mlp) and the shared expert: Ops::load_experts
};

/// One timeline's memory on the device: recurrent state (gated delta S and the last conv inputs) and the KV cache.
/// The KV cache can be cut at any token; the recurrent state only replaced as a whole. Both can be copied to host bytes
/// and back, in the backend's own layout (`layout()` names it: bytes are only ever given back to the same layout).
class SequenceState {
 public:
  SequenceState() = default;
  SequenceState(const SequenceState&) = delete;
  SequenceState& operator=(const SequenceState&) = delete;
  virtual ~SequenceState() = default;

  virtual std::string layout() const = 0;
  virtual std::size_t recurrent_bytes() const = 0;
  virtual std::size_t kv_bytes_per_token() const = 0;
  virtual void reset() = 0;  // recurrent state to zeros
  virtual void read_recurrent(std::span<std::byte> out) const = 0;
  virtual void write_recurrent(std::span<const std::byte> in) = 0;
  /// KV of the tokens [begin, end), `(end - begin) * kv_bytes_per_token()` bytes, token by token (so that a range of
  /// the bytes is the range of the tokens).
  virtual void read_kv(std::int64_t begin, std::int64_t end, std::span<std::byte> out) const = 0;
  virtual void write_kv(std::int64_t begin, std::int64_t end, std::span<const std::byte> in) = 0;
};

/// Consecutive rows of a batch that belong to one timeline: tokens at `position`, `position + 1`, ...
struct Segment {
  SequenceState* state = nullptr;
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t position = 0;
};
using Batch = std::span<const Segment>;

/// In the place of a token: the one that the decode loop drew last. Only inside DecodeLoop::Forward.
inline constexpr std::int32_t kDrawnToken = -1;

/// Decoding with the drawn token kept on the device: the forward pass and the choice of the next token are recorded
/// once and replayed, and the host reads the tokens behind. Made for one timeline; nothing else may move that timeline
/// between start() and the last next().
class DecodeLoop {
 public:
  /// Gives the logits of one row: forward(ops, model, tokens, batch, {0}).
  using Forward = std::function<Tensor(std::span<const std::int32_t> tokens, Batch batch)>;

  struct Start {
    std::int32_t token = 0;     // the first to be computed; the host chose it
    std::int64_t position = 0;  // of that token: so many tokens are in the timeline
    std::int32_t vocab = 0;     // ids from here on are never drawn
    const SamplingParams* sampling = nullptr;
    std::span<const std::int32_t> generated;  // the reply so far with `token`, in any order, for the penalties
    std::span<const std::int32_t> stops;      // at most 8; after one is drawn, further steps change nothing
    std::function<double()> uniform;          // one number in [0, 1) for each draw
  };

  virtual ~DecodeLoop() = default;
  virtual void start(const Start& start) = 0;
  /// Queues one step: computes the token drawn last and draws the next. Waits only while two steps are in flight.
  virtual void submit() = 0;
  /// The token that the oldest step drew whose token was not yet taken; waits for it. At most 32 may be outstanding.
  /// After a stop token: that token again. Throws Error when no token could be drawn.
  virtual std::int32_t next() = 0;
  /// The logits that the last step drew from, [vocab]; with a stop token, those that it was drawn from. Waits.
  virtual void read_logits(std::span<float> out) = 0;
};

class Ops {
 public:
  virtual ~Ops() = default;

  // ---- memory ----
  /// The parts' rows one after another; all have the same `in`. The checkpoint stays mapped while the weight lives.
  virtual Weight load_linear(std::span<const QuantizedMatrix> parts) = 0;
  /// For embed() alone: a few rows of it are read at a time.
  virtual Weight load_table(const QuantizedMatrix& table) { return load_linear(std::span(&table, 1)); }
  virtual std::shared_ptr<const Storage> load_experts(const MlpMatrices& routed, const MlpMatrices& shared) = 0;
  virtual Vector load_vector(std::span<const float> values) = 0;
  /// A state for timelines of up to `capacity` tokens (memory may grow towards it as tokens come). Zeroed.
  virtual std::unique_ptr<SequenceState> new_state(std::int64_t capacity) = 0;
  /// Uninitialised activations; storage is pooled.
  virtual Tensor tensor(std::int64_t rows, std::int64_t cols) = 0;
  virtual void read(const Tensor& tensor, std::span<float> out) = 0;

  /// Rows of a forward pass from which more make a prompt hardly faster.
  virtual std::int64_t prefill_chunk() const { return 512; }

  // ---- compute ----
  /// x[r] = table[tokens[r]]
  virtual void embed(const Weight& table, std::span<const std::int32_t> tokens, Tensor& x) = 0;
  /// out = rms_norm(x, norm) W^T
  virtual void project(const Tensor& x, const Vector& norm, const Weight& weight, Tensor& out) = 0;
  /// x += in W^T
  virtual void project_add(const Tensor& in, const Weight& weight, Tensor& x) = 0;
  /// Conv, gates, delta rule and gated norm. `projected`: rows of in_proj [rows, linear_rows]; out: [rows, value_rows].
  /// `layer` counts the gated-delta layers only. Reads and replaces each segment's recurrent state.
  virtual void gated_delta(const Tensor& projected, const GatedDeltaWeights& weights, std::int64_t layer, Batch batch,
                           Tensor& out) = 0;
  /// Head norms, rope, KV write, causal scores, output gate. `projected`: [rows, attention_rows];
  /// out: [rows, heads * head_dim]. `layer` counts the attention layers only.
  virtual void attention(const Tensor& projected, const AttentionWeights& weights, std::int64_t layer, Batch batch,
                         Tensor& out) = 0;
  /// x += moe(rms_norm(x, post_attention_layernorm)): softmax router, top experts renormalised, shared expert by its
  /// gate.
  virtual void mixture_of_experts(const MoeWeights& weights, Tensor& x) = 0;
  /// logits[i] = head(rms_norm(x[rows[i]], norm)): [rows.size(), vocab]
  virtual void lm_head(const Tensor& x, const Vector& norm, const Weight& head, std::span<const std::int64_t> rows,
                       Tensor& logits) = 0;

  // ---- decoding on the device ----
  /// Null where tokens come back to the host one by one.
  virtual std::unique_ptr<DecodeLoop> decode_loop(SequenceState&, DecodeLoop::Forward) { return nullptr; }
};

}  // namespace lily
