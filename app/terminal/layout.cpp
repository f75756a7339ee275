#include "terminal/layout.h"

#include <algorithm>

#include "terminal/graphemes.h"

namespace lily {

Layout lay_out(std::string_view text, std::size_t cursor, int columns, int indent) {
  constexpr int kWidestGlyph = 4;
  columns = std::max(columns, indent + kWidestGlyph);
  Layout layout;
  layout.rows.emplace_back();
  int column = indent;
  const auto new_row = [&] {
    layout.rows.emplace_back(static_cast<std::size_t>(indent), ' ');
    column = indent;
  };
  for (std::size_t at = 0;; at += cluster_size(text, at)) {
    const bool is_end = at == text.size();
    const Glyph glyph = is_end || text[at] == '\n' ? Glyph{"", 1} : glyph_of(text.substr(at, cluster_size(text, at)));
    // A place for the end of a line is only needed where the cursor stands.
    if (column + glyph.width > columns && (!glyph.text.empty() || at == cursor)) new_row();
    if (at == cursor) {
      layout.cursor_row = layout.rows.size() - 1;
      layout.cursor_column = column;
    }
    if (is_end) return layout;
    if (text[at] == '\n') {
      new_row();
    } else {
      layout.rows.back() += glyph.text;
      column += glyph.width;
    }
  }
}

}  // namespace lily
