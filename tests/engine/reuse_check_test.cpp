#include "engine/reuse_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "support/error.h"

namespace lily {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinite = std::numeric_limits<float>::infinity();

std::string said(float reused, float cold, Equality equality) {
  const std::vector<float> a{1, reused, 3};
  const std::vector<float> b{1, cold, 3};
  try {
    check_reuse(a, b, equality, 7);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ReuseCheck, BitsHaveToBeEqual) {
  for (const float value : {0.0F, -2.5F, kNan, kInfinite}) EXPECT_EQ(said(value, value, Equality::kBits), "") << value;
  EXPECT_EQ(said(2, 2.25F, Equality::kBits),
            "verify-cache: after 7 reused tokens 1 of 3 logits differ from a cold run, by up to 0.25");
  for (const auto& [a, b] : std::vector<std::pair<float, float>>{
           {2, std::nextafter(2.0F, 3.0F)}, {0.0F, -0.0F}, {2, kNan}, {kNan, 2}, {kInfinite, 2}}) {
    EXPECT_NE(said(a, b, Equality::kBits), "") << a << " " << b;
  }
}

TEST(ReuseCheck, RoundingMayDiffer) {
  EXPECT_EQ(said(2, 2.49F, Equality::kRounding), "");
  EXPECT_EQ(said(0.0F, -0.0F, Equality::kRounding), "");
  for (const auto& [a, b] : std::vector<std::pair<float, float>>{
           {2, 2.5F}, {2, 1.25F}, {2, kNan}, {kNan, 2}, {kNan, kNan}, {kInfinite, 2}, {kInfinite, kInfinite}}) {
    EXPECT_NE(said(a, b, Equality::kRounding), "") << a << " " << b;
  }
}

}  // namespace
}  // namespace lily
