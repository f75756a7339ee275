// The GPU backend: implements Ops over a Device (Metal, CUDA or emulated). It chooses kernels and grids; the Device
// knows nothing of language models.
//
// One row (decode) and many rows (prefill) have kernels of their own. Activations between them: the residual stream,
// logits and everything of one row in float32, the rest in bf16.
#pragma once

#include <memory>

#include "device/device.h"
#include "model/config.h"
#include "ops/ops.h"

namespace lily {

/// How the operations run, not what they give. The switches are there to measure what an optimisation brings: each
/// leaves one out of an otherwise equal engine. (What a Device does is switched there: Device::set_overlap.)
struct GpuOptions {
  /// Kernels with mma.sync bodies (src/kernels/cuda): on CUDA, and for tests in the emulator.
  enum class TensorCores { kWhereFound, kNever, kEmulated };
  TensorCores tensor_cores = TensorCores::kWhereFound;
  /// Threadgroups that share one token's attention, over all key/value heads. Fewer than 2 for each of these: the cache
  /// is not split.
  std::int64_t attention_groups = 132;
  /// Decode: from 32,768 tokens of room on the splits are blocks of so many tokens, however many that makes (256 at
  /// most). 0: as many splits as attention_groups gives, at any length.
  std::int64_t attention_block = 0;
  /// A key/value head's cache is read once for all of its query heads. Off: each query head reads it for itself.
  bool packed_heads = true;
  /// Neighbouring lanes read neighbouring bytes of the cache: [token][head][dimension]. Off: [head][8
  /// dimensions][token], where they read 16 bytes each of different lines.
  bool coalesced_cache = true;
  /// Decode: the device draws the next token and goes on with it. Off: there is no decode_loop(), the host reads the
  /// logits and draws.
  bool tokens_on_device = true;
  /// Decode: a step's launches are recorded once (a graph on CUDA). Off: they are made anew for each token.
  bool recorded_steps = true;
  /// Prefill: the device sorts rows by expert. Off: the host reads which experts were chosen, sorts and writes the
  /// list.
  bool routing_on_device = true;
  /// Prefill: products make bf16 of the codes as they need them. Off: a matrix is made bf16 in memory first, and
  /// multiplied from there.
  bool dequantise_in_products = true;
  /// Prefill: rows of an expert's tile, 16 or 32, on tensor cores 64 or 128 too. 0: 32, or on tensor cores by load.
  std::int64_t expert_tile_rows = 0;
  /// Prefill: the delta rule by chunks of 64 tokens (tensor cores alone have that; the others scan), or by a scan,
  /// token by token, with the state in registers all along, or in memory between blocks of 16 tokens.
  enum class DeltaRule { kChunks, kScan, kBlockScan };
  DeltaRule delta_rule = DeltaRule::kChunks;
  /// Decode: the fused launches. Off: the experts' gate, up and activation by themselves;
  bool fused_experts_up = true;
  /// their down products by themselves, then the sum by the router's shares, with the shared expert;
  bool fused_experts_down = true;
  /// norms and rotation of queries and keys before attention;
  bool fused_query_key = true;
  /// conv and norms before the recurrent update, the gated norm after it.
  bool fused_delta = true;

  bool operator==(const GpuOptions& other) const = default;
};

/// `device` must outlive the Ops. Throws Error when the model has a size that no kernel is there for.
std::unique_ptr<Ops> make_gpu_ops(Device& device, const ModelConfig& config, const GpuOptions& options = {});

}  // namespace lily
