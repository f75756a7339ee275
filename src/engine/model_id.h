// A number that tells checkpoints apart, so that no state is reused with weights that it was not computed with: the
// hash of config.json, of every tensor's name, type and shape, and of a few spread pieces of its bytes.
//
// It verifies nothing, and cannot see a change that lies between the pieces: eight of 64 bytes, of a tensor that may
// have a hundred megabytes. Training, another quantisation or a merge change nearly all bytes of a tensor and are seen;
// an edit of single values or rows, or a damaged sector, most likely is not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace lily {

/// Asks for the pieces first and reads them then, so that on a disk they come side by side: the files take gigabytes,
/// and a page may have left the memory since it was used.
std::uint64_t model_id(const Checkpoint& checkpoint);

/// The pieces of a tensor that count: evenly spread, with its first and its last bytes; all of it if it is small.
std::vector<std::span<const std::byte>> pieces_of(std::span<const std::byte> bytes);

}  // namespace lily
