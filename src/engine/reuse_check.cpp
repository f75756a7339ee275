#include "engine/reuse_check.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "support/error.h"

namespace lily {
namespace {

constexpr float kRounding = 0.5F;  // of logits; a wrong state is off by whole units

bool differ(float a, float b, Equality equality) {
  if (equality == Equality::kBits) return std::bit_cast<std::uint32_t>(a) != std::bit_cast<std::uint32_t>(b);
  return !(std::abs(a - b) < kRounding);
}

}  // namespace

void check_reuse(std::span<const float> reused, std::span<const float> cold, Equality equality,
                 std::int64_t reused_tokens) {
  LILY_CHECK(reused.size() == cold.size());
  std::size_t different = 0;
  float worst = 0;
  for (std::size_t i = 0; i < reused.size(); ++i) {
    different += differ(reused[i], cold[i], equality) ? 1 : 0;
    worst = std::max(worst, std::abs(reused[i] - cold[i]));
  }
  if (different == 0) return;
  throw Error(fmt::format("verify-cache: after {} reused tokens {} of {} logits differ from a cold run, by up to {:g}",
                          reused_tokens, different, reused.size(), worst),
              "the kept state is wrong, which is a fault of lily or of files in --cache-dir that are not its own: "
              "remove them, and report it if it happens again");
}

}  // namespace lily
