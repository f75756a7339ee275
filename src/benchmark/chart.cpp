#include "benchmark/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

namespace lily {
namespace {

constexpr double kWidth = 720, kHeight = 420;
constexpr double kLeft = 80, kRight = 24, kTop = 48, kBottom = 56;

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '<') {
      result += "&lt;";
    } else if (c == '&') {
      result += "&amp;";
    } else {
      result += c;
    }
  }
  return result;
}

/// A round number of at least `value`: 1, 2 or 5 times a power of ten.
double round_up(double value) {
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= value) return factor * power;
  }
  return 10 * power;
}

struct Axes {
  double low = 1, high = 2, step = 1, top = 1;

  explicit Axes(const Chart& chart) {
    double least = INFINITY, most = 0, largest = 0;
    for (const Series& series : chart.series) {
      for (const auto& [x, y] : series.points) {
        least = std::min(least, x);
        most = std::max(most, x);
        largest = std::max(largest, y);
      }
    }
    if (most > 0) {
      low = std::floor(std::log2(least));
      high = std::max(low + 1, std::ceil(std::log2(most)));
    }
    if (largest > 0) step = round_up(largest / 6);
    top = step * std::max(1.0, std::ceil(largest / step));
  }
  double x(double value) const { return kLeft + (std::log2(value) - low) / (high - low) * (kWidth - kLeft - kRight); }
  double y(double value) const { return kHeight - kBottom - value / top * (kHeight - kTop - kBottom); }
};

std::string count_name(double value) {
  return value >= 1024 ? fmt::format("{}K", value / 1024) : fmt::format("{}", value);
}

void draw_axes(std::string& svg, const Axes& axes, const Chart& chart) {
  const auto out = std::back_inserter(svg);
  for (int line = 0; line * axes.step <= axes.top * 1.001; ++line) {
    const double value = line * axes.step, y = axes.y(value);
    fmt::format_to(out,
                   "<line x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\" stroke=\"#ddd\"/>"
                   "<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
                   kLeft, y, kWidth - kRight, y, kLeft - 8, y + 4, value);
  }
  for (double power = axes.low; power <= axes.high; ++power) {
    const double x = axes.x(std::exp2(power));
    fmt::format_to(out, "<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", x, kHeight - kBottom + 20,
                   count_name(std::exp2(power)));
  }
  fmt::format_to(out,
                 "<text x=\"{}\" y=\"26\" text-anchor=\"middle\" font-size=\"16\">{}</text>\n"
                 "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n"
                 "<text transform=\"translate(20 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
                 kWidth / 2, escaped(chart.title), kWidth / 2, kHeight - 12, escaped(chart.x_label), kHeight / 2,
                 escaped(chart.y_label));
}

void draw_series(std::string& svg, const Axes& axes, const Series& series, std::size_t index) {
  constexpr std::array kColours{"#1f77b4", "#d62728", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#17becf", "#7f7f7f"};
  const char* colour = kColours[index % kColours.size()];
  const auto out = std::back_inserter(svg);
  std::string line;
  for (const auto& [x, y] : series.points) {
    fmt::format_to(std::back_inserter(line), "{:.1f},{:.1f} ", axes.x(x), axes.y(y));
    fmt::format_to(out, "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", axes.x(x), axes.y(y), colour);
  }
  const double legend = kTop + 16 * static_cast<double>(index);
  fmt::format_to(out,
                 "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n"
                 "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"{}\">{}</text>\n",
                 line, colour, kWidth - kRight, legend, colour, escaped(series.name));
}

}  // namespace

std::string svg_of(const Chart& chart) {
  const Axes axes(chart);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      kWidth, kHeight);
  draw_axes(svg, axes, chart);
  for (std::size_t i = 0; i < chart.series.size(); ++i) draw_series(svg, axes, chart.series[i], i);
  return svg + "</svg>\n";
}

}  // namespace lily
