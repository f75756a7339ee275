// A line chart as SVG: the horizontal axis is logarithmic in base 2 (lengths of prompts), the vertical one starts at 0.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace lily {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x > 0, y >= 0, x ascending
};

struct Chart {
  std::string title;
  std::string x_label, y_label;
  std::vector<Series> series;  // at most eight are told apart by colour
};

/// A whole SVG document.
std::string svg_of(const Chart& chart);

}  // namespace lily
