// How a text that is being edited is laid out on the screen: wrapped into rows, with the cursor's place.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lily {

struct Layout {
  std::vector<std::string> rows;
  std::size_t cursor_row = 0;
  int cursor_column = 0;
};

/// Rows of at most `columns` columns; the first has `indent` columns left free for a prompt that the caller writes, the
/// others begin with that many spaces. `cursor` is a byte offset into `text`. The cursor always has a column of its
/// own.
Layout lay_out(std::string_view text, std::size_t cursor, int columns, int indent);

}  // namespace lily
