// What a person sees as one character: its bytes, and the columns it takes on a terminal. Terminals disagree about some
// emoji sequences; here a cluster is as wide as its widest code point, and two columns with an emoji selector.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lily {

/// Bytes of the cluster that begins at `offset` < text.size(); `text` is UTF-8.
std::size_t cluster_size(std::string_view text, std::size_t offset);
/// Where the cluster that ends at `offset` > 0 begins.
std::size_t cluster_before(std::string_view text, std::size_t offset);

/// What is shown for a cluster, and how wide it is: control characters as ^X, a tab as four spaces.
struct Glyph {
  std::string text;
  int width = 0;
};
Glyph glyph_of(std::string_view cluster);

/// Columns of a text without line breaks.
int display_width(std::string_view text);

}  // namespace lily
