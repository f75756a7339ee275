// The tokens that may be drawn, and how likely each is: temperature, top-k, top-p and min-p over one row of logits.
//
// Each filter keeps the most likely tokens, so each is a cut at some (logit, id); equal logits rank by the lower id. No
// filter sorts the vocabulary: top-k prunes by the maxima of blocks of logits, top-p by a histogram of probability over
// distance from the best logit, and only what is left, or one bin, is ordered.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sampling/sampling_params.h"

namespace lily {

class Candidates {
 public:
  /// Temperature (> 0), top_k, top_p and min_p of `params`. `logits` are finite, -inf or NaN; afterwards empty() if
  /// none is finite.
  void select(std::span<const float> logits, const SamplingParams& params);

  /// The `count` most likely (0: all) with a finite logit, best first; without weights.
  void select_top(std::span<const float> logits, std::size_t count);

  bool empty() const { return count_ == 0; }
  std::span<const std::int32_t> ids() const { return {ids_.data(), count_}; }  // ascending after select()
  std::span<const float> logits() const { return {logits_.data(), count_}; }
  std::span<const float> weights() const { return {weights_.data(), count_}; }  // probability times total()
  double total() const { return total_; }

  /// `u` in [0, 1): the first id, in their order, at which the running sum of weights exceeds u * total().
  std::int32_t draw(double u) const;

 private:
  /// A candidate by its place in the arrays below: places rise with ids.
  struct Rank {
    float logit;
    std::uint32_t place;
  };
  static bool before(const Rank& a, const Rank& b) {
    return a.logit > b.logit || (a.logit == b.logit && a.place < b.place);
  }

  void gather(std::span<const float> logits, std::size_t top_k, float margin);
  void keep_top_k(std::size_t top_k);
  void keep_ranks_to(const Rank& last);
  void keep_top_p(double top_p, float temperature);
  Rank nucleus_end(std::size_t bin, double mass_before, double target);
  template <typename Predicate>
  void keep_if(Predicate keep);

  // [logits.size()] each, of which the first count_ are in use: they never shrink, so that no call has to clear them.
  std::vector<std::int32_t> ids_;
  std::vector<float> logits_;
  std::vector<float> weights_;
  std::vector<std::uint16_t> bins_;
  std::size_t count_ = 0;
  double total_ = 0.0;
  float top_ = 0.0F;  // the largest logit
  std::vector<float> block_tops_, floors_;
  std::vector<Rank> ranks_;
};

}  // namespace lily
