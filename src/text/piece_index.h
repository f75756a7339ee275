// From the bytes of a piece to its id: an open-addressing hash table made once for a known number of pieces. The bytes
// stay with the caller.
#pragma once

#include <xxhash.h>

#include <bit>
#include <cstdint>
#include <string_view>
#include <vector>

namespace lily {

class PieceIndex {
 public:
  PieceIndex() : PieceIndex(0) {}
  explicit PieceIndex(std::size_t pieces) : slots_(std::bit_ceil(2 * pieces + 2)) {}

  /// False if the piece is there already. At most as many insertions as announced.
  bool insert(std::string_view piece, std::int32_t id) {
    Slot& slot = slots_[slot_of(piece)];
    if (slot.id >= 0) return false;
    slot = {piece.data(), static_cast<std::uint32_t>(piece.size()), id};
    return true;
  }
  /// The id, or -1.
  std::int32_t find(std::string_view piece) const { return slots_[slot_of(piece)].id; }

 private:
  struct Slot {
    const char* text = nullptr;
    std::uint32_t size = 0;
    std::int32_t id = -1;
  };
  std::size_t slot_of(std::string_view piece) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = XXH3_64bits(piece.data(), piece.size()) & mask;
    while (slots_[slot].id >= 0 && std::string_view(slots_[slot].text, slots_[slot].size) != piece) {
      slot = (slot + 1) & mask;
    }
    return slot;
  }

  std::vector<Slot> slots_;  // a power of two, at most half full
};

}  // namespace lily
