#include "sampling/logits_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace lily {
namespace {

TEST(LogitsMath, ExponentialIsAccurate) {
  double worst = 0.0;
  for (float x = 0.0F; x > -87.0F; x -= 0.00137F) {
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(exp_clamped(x) - exact) / exact);
  }
  EXPECT_LT(worst, 3e-7);
  EXPECT_EQ(exp_clamped(0.0F), 1.0F);
  EXPECT_EQ(exp_clamped(-88.5F), 0.0F);
  EXPECT_EQ(exp_clamped(clamp_exponent(kNoLogit)), 0.0F);
  EXPECT_EQ(exp_clamped(clamp_exponent(std::numeric_limits<float>::quiet_NaN())), 0.0F);
}

TEST(LogitsMath, LargestSkipsNaN) {
  std::vector<float> logits;
  EXPECT_EQ(largest(logits), kNoLogit);
  for (int size = 1; size < 70; ++size) {
    logits.assign(static_cast<std::size_t>(size), std::numeric_limits<float>::quiet_NaN());
    EXPECT_EQ(largest(logits), kNoLogit);
    for (int at = 0; at < size; ++at) {
      logits.assign(static_cast<std::size_t>(size), -5.0F);
      logits[static_cast<std::size_t>(at)] = -1.0F;
      EXPECT_EQ(largest(logits), -1.0F);
    }
  }
}

}  // namespace
}  // namespace lily
