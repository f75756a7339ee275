// What one token costs in bytes and operations, from the checkpoint alone: what measured speed is compared with.
#pragma once

#include <cstdint>

#include "checkpoint/checkpoint.h"

namespace lily {

/// Bytes of weights that one decoded token must read: all but the table of embeddings and the experts not chosen.
std::uint64_t active_weight_bytes(const Checkpoint& checkpoint);

/// The same from the sizes alone, for 4-bit matrices in groups of 64 and 8-bit gates, without norms and other vectors.
std::uint64_t active_matrix_bytes(const ModelConfig& config);

/// active_weight_bytes with the recurrent state, read and written, and the KV cache of `context` tokens, read.
/// `kv_value_bytes`: as the backend keeps keys and values.
std::uint64_t decode_bytes(const Checkpoint& checkpoint, std::int64_t context, std::int64_t kv_value_bytes);

/// Multiplications and additions of the matrix products of one prompt token (the head is computed once per prompt),
/// with attention over half of `length` tokens.
double prefill_operations(const ModelConfig& config, std::int64_t length);

}  // namespace lily
