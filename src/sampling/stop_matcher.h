// Stop strings in a stream of text: text in by pieces, out what may be shown. Held back is only what could still become
// the beginning of a stop string. A stop string is found wherever the pieces are cut.
//
// One Knuth-Morris-Pratt automaton per stop string, so the cost is linear in the text whatever the strings are. The
// strings are compared as bytes: whole UTF-8 characters in, whole characters out.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lily {

class StopMatcher {
 public:
  /// Throws Error on an empty stop string.
  explicit StopMatcher(const std::vector<std::string>& stops);

  /// The text that is certain now. After the end of the first stop string nothing comes any more; of several that end
  /// at the same place the longest counts. Neither the stop string nor what follows it is given out.
  std::string push(std::string_view text);
  /// What is still held back; the next push starts anew.
  std::string finish();

  bool stopped() const { return matched_.has_value(); }
  /// Index of the stop string that was found.
  std::optional<std::size_t> matched() const { return matched_; }

 private:
  struct Stop {
    std::string text;
    std::vector<std::size_t> fallback;  // length of the longest proper border of each prefix; [0] is not used
    std::size_t length = 0;             // how much of `text` the input's end matches
  };

  void advance(Stop& stop, char byte) const;

  std::vector<Stop> stops_;
  std::string held_;  // a beginning of some stop string, at the input's end
  std::optional<std::size_t> matched_;
};

}  // namespace lily
