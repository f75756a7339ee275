#include "sampling/stop_matcher.h"

#include <algorithm>

#include "support/error.h"

namespace lily {

StopMatcher::StopMatcher(const std::vector<std::string>& stops) {
  for (const std::string& text : stops) {
    if (text.empty()) throw_error("stop string {} is empty, expected at least one character", stops_.size() + 1);
    Stop stop{text, std::vector<std::size_t>(text.size() + 1), 0};
    for (std::size_t end = 1, border = 0; end < text.size(); stop.fallback[++end] = border) {
      while (border > 0 && text[border] != text[end]) border = stop.fallback[border];
      if (text[border] == text[end]) ++border;
    }
    stops_.push_back(std::move(stop));
  }
}

void StopMatcher::advance(Stop& stop, char byte) const {
  while (stop.length > 0 && stop.text[stop.length] != byte) stop.length = stop.fallback[stop.length];
  if (stop.text[stop.length] == byte) ++stop.length;
}

std::string StopMatcher::push(std::string_view text) {
  if (stopped()) return {};
  std::string out = std::move(held_);
  held_.clear();
  std::size_t keep = 0;  // bytes at the end of `out` that may belong to a stop string
  for (const char byte : text) {
    out += byte;
    keep = 0;
    for (std::size_t i = 0; i < stops_.size(); ++i) {
      Stop& stop = stops_[i];
      advance(stop, byte);
      if (stop.length == stop.text.size() && (!matched_ || stop.length > stops_[*matched_].length)) matched_ = i;
      keep = std::max(keep, stop.length);
    }
    if (matched_) {
      out.resize(out.size() - stops_[*matched_].length);
      return out;
    }
  }
  if (text.empty()) keep = out.size();
  held_ = out.substr(out.size() - keep);
  out.resize(out.size() - keep);
  return out;
}

std::string StopMatcher::finish() {
  for (Stop& stop : stops_) stop.length = 0;
  std::string rest = std::move(held_);
  held_.clear();
  return rest;
}

}  // namespace lily
