// --verify-cache: whether logits after a prompt whose beginning was reused are those of the whole prompt computed anew.
//
// On the CPU a token gets the same bits whatever shares its batch (docs/parity.md), so any other bit means a wrong
// state. A GPU adds in another order for other numbers of rows: there only a difference beyond rounding shows one.
#pragma once

#include <cstdint>
#include <span>

namespace lily {

enum class Equality { kBits, kRounding };

/// Throws Error when they differ; in kRounding what is no number, or infinite, always differs. Both have the same
/// size.
void check_reuse(std::span<const float> reused, std::span<const float> cold, Equality equality,
                 std::int64_t reused_tokens);

}  // namespace lily
