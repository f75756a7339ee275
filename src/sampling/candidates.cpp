#include "sampling/candidates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>

#include "sampling/logits_math.h"

namespace lily {
namespace {

constexpr std::size_t kBlock = 256;
constexpr std::size_t kBins = 2048;
// A token this far below the best (in logits / temperature) has 4e-18 of its probability: the last bin takes them all.
constexpr float kFarthest = 40.0F;

}  // namespace

void Candidates::select(std::span<const float> logits, const SamplingParams& params) {
  const float temperature = params.temperature;
  // min-p is a cut at a logit that is known beforehand, but only where no top-p has to see what it drops. The exact cut
  // follows with the weights; this one is a little lower.
  float margin = std::numeric_limits<float>::infinity();
  if (params.min_p > 0.0F && params.top_p >= 1.0F) margin = temperature * (0.001F - std::log(params.min_p));
  gather(logits, static_cast<std::size_t>(params.top_k), margin);
  if (params.top_k > 0) keep_top_k(static_cast<std::size_t>(params.top_k));

  total_ = exp_weights({logits_.data(), count_}, top_, temperature, {weights_.data(), count_});
  if (params.top_p < 1.0F && count_ > 0) keep_top_p(static_cast<double>(params.top_p), temperature);
  if (params.min_p > 0.0F) keep_if([&](std::size_t i) { return weights_[i] >= params.min_p; });
}

void Candidates::select_top(std::span<const float> logits, std::size_t count) {
  gather(logits, count, std::numeric_limits<float>::infinity());
  if (count > 0) keep_top_k(count);
  ranks_.clear();
  for (std::size_t i = 0; i < count_; ++i) ranks_.push_back({logits_[i], static_cast<std::uint32_t>(ids_[i])});
  std::sort(ranks_.begin(), ranks_.end(), before);
  for (std::size_t i = 0; i < count_; ++i) {
    ids_[i] = static_cast<std::int32_t>(ranks_[i].place);
    logits_[i] = ranks_[i].logit;
  }
}

/// Takes every token that can be among the `top_k` most likely (0: all) and is at most `margin` below the best.
void Candidates::gather(std::span<const float> logits, std::size_t top_k, float margin) {
  block_tops_.clear();
  for (std::size_t i = 0; i < logits.size(); i += kBlock) {
    block_tops_.push_back(largest(logits.subspan(i, std::min(kBlock, logits.size() - i))));
  }
  top_ = largest(block_tops_);
  float floor = std::max(-std::numeric_limits<float>::max(), top_ - margin);
  if (top_k > 0 && top_k <= block_tops_.size()) {
    // The k-th largest block maximum: at least k tokens reach it.
    floors_ = block_tops_;
    const auto kth = floors_.begin() + static_cast<std::ptrdiff_t>(top_k - 1);
    std::nth_element(floors_.begin(), kth, floors_.end(), std::greater<>());
    floor = std::max(floor, *kth);
  }
  if (ids_.size() < logits.size()) {
    ids_.resize(logits.size());
    logits_.resize(logits.size());
    weights_.resize(logits.size());
    bins_.resize(logits.size());
  }
  const std::span<std::int32_t> ids(ids_);
  const std::span<float> kept(logits_);
  std::size_t count = 0;
  for (std::size_t block = 0; block < block_tops_.size(); ++block) {
    if (!(block_tops_[block] >= floor)) continue;
    const std::size_t end = std::min(logits.size(), (block + 1) * kBlock);
    for (std::size_t i = block * kBlock; i < end; ++i) {
      ids[count] = static_cast<std::int32_t>(i);
      kept[count] = logits[i];
      count += logits[i] >= floor ? 1 : 0;
    }
  }
  count_ = count;
}

/// Closes the gaps without a branch per token: on flat distributions it would be mispredicted half of the time.
template <typename Predicate>
void Candidates::keep_if(Predicate keep) {
  const std::span<std::int32_t> ids(ids_);
  const std::span<float> logits(logits_);
  const std::span<float> weights(weights_);
  std::size_t count = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    const bool kept = keep(i);
    ids[count] = ids[i];
    logits[count] = logits[i];
    weights[count] = weights[i];
    count += kept ? 1 : 0;
  }
  count_ = count;
  total_ = sum(weights.first(count));
}

void Candidates::keep_top_k(std::size_t top_k) {
  if (count_ <= top_k) return;
  ranks_.clear();
  for (std::size_t i = 0; i < count_; ++i) ranks_.push_back({logits_[i], static_cast<std::uint32_t>(i)});
  const auto kth = ranks_.begin() + static_cast<std::ptrdiff_t>(top_k - 1);
  std::nth_element(ranks_.begin(), kth, ranks_.end(), before);
  const Rank last = *kth;
  keep_ranks_to(last);
}

void Candidates::keep_ranks_to(const Rank& last) {
  keep_if([this, last](std::size_t i) {
    const int above = logits_[i] > last.logit, equal = logits_[i] == last.logit, early = i <= last.place;
    return (above | (equal & early)) != 0;
  });
}

/// A token stays while the mass of those before it is below top_p of the whole; the best always stays.
void Candidates::keep_top_p(double top_p, float temperature) {
  std::array<double, kBins> mass{};
  const float scale = (kBins / kFarthest) / std::max(temperature, 1e-30F);
  for (std::size_t i = 0; i < count_; ++i) {
    const float distance = std::min((top_ - logits_[i]) * scale, kBins - 1.0F);
    bins_[i] = static_cast<std::uint16_t>(static_cast<std::int32_t>(distance));
  }
  for (std::size_t i = 0; i < count_; ++i) mass[bins_[i]] += static_cast<double>(weights_[i]);
  const double target = top_p * total_;
  double mass_before = 0.0;
  std::size_t bin = 0;
  while (bin + 1 < kBins && mass_before + mass[bin] < target) mass_before += mass[bin++];
  const Rank last = nucleus_end(bin, mass_before, target);
  keep_ranks_to(last);
}

/// The last token of `bin` that stays, when those in earlier bins have `mass_before`.
Candidates::Rank Candidates::nucleus_end(std::size_t bin, double mass_before, double target) {
  ranks_.clear();
  for (std::size_t i = 0; i < count_; ++i) {
    if (bins_[i] == bin) ranks_.push_back({logits_[i], static_cast<std::uint32_t>(i)});
  }
  if (ranks_.empty()) return {kNoLogit, 0};  // rounding: all of the mass lies in earlier bins
  std::sort(ranks_.begin(), ranks_.end(), before);
  std::size_t last = 0;
  for (; last + 1 < ranks_.size(); ++last) {
    mass_before += static_cast<double>(weights_[ranks_[last].place]);
    if (mass_before >= target) break;
  }
  return ranks_[last];
}

std::int32_t Candidates::draw(double u) const {
  const double target = u * total_;
  double sum = 0.0;
  std::size_t last = 0;
  for (std::size_t i = 0; i < count_; ++i) {
    sum += static_cast<double>(weights_[i]);
    if (sum > target) return ids_[i];
    if (weights_[i] > 0.0F) last = i;
  }
  return ids_[last];  // the sum was rounded below the total
}

}  // namespace lily
