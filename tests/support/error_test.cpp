#include "support/error.h"

#include <gtest/gtest.h>

#include <string_view>

namespace lily {
namespace {

using std::string_literals::operator""s;

TEST(Error, ShowsZerosInsteadOfEndingThere) {
  const Error error("tool 'a\0\0b' is odd"s, "call it '\0c'"s);
  EXPECT_EQ(std::string_view(error.what()), "tool 'a\\0\\0b' is odd");
  EXPECT_EQ(error.hint(), "call it '\\0c'");
  try {
    throw_error("{} is damaged", "x\0y"s);
  } catch (const Error& thrown) {
    EXPECT_EQ(std::string_view(thrown.what()), "x\\0y is damaged");
  }
}

}  // namespace
}  // namespace lily
