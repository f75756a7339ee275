// Activations as integers, for integer dot products with 4-bit codes: each group of 64 consecutive values has a scale,
// value = scale * q. One plane: q in [-127, 127]. Two planes: q = 256 * high + low in [-32639, 32639], which is as good
// as float32 between ops (16 bits against the largest value of the group).
//
// A row is one record of bytes:
//     high plane [padded] | low plane [padded], with two planes | scales [groups] float32 | sums [groups] float32
// sums are scale * (sum of q): the codes' bias times this is the bias's part of a dot product.
// Inside a plane, blocks of kBlockGroups groups: the even values of all its groups, then the odd ones, since a byte of
// codes holds an even value's code in its lower half and an odd one's in its upper half.
#pragma once

#include <cstdint>

namespace lily::cpu {

constexpr std::int64_t kRecordGroup = 64;

struct RecordLayout {
  std::int64_t in = 0;
  int planes = 1;

  std::int64_t groups() const { return in / kRecordGroup; }
  std::int64_t padded() const { return (in + 127) / 128 * 128; }  // whole blocks of two groups
  std::int64_t low_offset() const { return padded(); }
  std::int64_t scale_offset() const { return planes * padded(); }
  std::int64_t sum_offset() const { return scale_offset() + 4 * groups(); }
  std::int64_t bytes() const { return (sum_offset() + 4 * groups() + 63) / 64 * 64; }
};

}  // namespace lily::cpu
