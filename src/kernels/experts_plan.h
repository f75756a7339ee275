// How prefill shares out rows to experts, all of it on the device.
//
//   route_rows       ids, shares [rows, count] and the shared expert's share [rows]; how many rows each expert got
//   plan_experts     where each expert's rows begin; the list of tiles
//   scatter_experts  pair_at[position] = row * count + slot, sorted by expert; position_of is its inverse
//
// A position is a (row, slot) pair in the order of experts; after all of them, from rows * count on, the shared expert
// has one position for each row, and the expert number `experts`.
#pragma once

#include "lily.h"

struct ExpertRows {
  uint rows;
  uint experts;
  uint count;      // experts per row
  uint tile_rows;  // of the products that follow
};

struct ExpertTile {
  uint expert;
  uint first;  // position
  uint rows;   // 0: nothing to do
};

// Tiles there can be at most: one more than full for each expert.
METAL_FUNC uint most_tiles(uint rows, uint experts, uint count, uint tile_rows) {
  return (rows * count + tile_rows - 1) / tile_rows + experts + (rows + tile_rows - 1) / tile_rows;
}
