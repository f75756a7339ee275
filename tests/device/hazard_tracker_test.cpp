#include <gtest/gtest.h>

#include <array>

#include "device/device.h"

namespace lily {
namespace {

class HazardTrackerTest : public testing::Test {
 protected:
  struct AnyBuffer : Buffer {
    AnyBuffer() : Buffer(100, nullptr) {}
  };
  bool add(std::vector<HazardTracker::Range> ranges) { return tracker_.add(ranges); }
  HazardTracker::Range read(int begin, int end) const { return range(a_, begin, end, false); }
  HazardTracker::Range write(int begin, int end) const { return range(a_, begin, end, true); }
  static HazardTracker::Range range(const Buffer& buffer, int begin, int end, bool written) {
    return {&buffer, static_cast<std::size_t>(begin), static_cast<std::size_t>(end), written};
  }
  AnyBuffer a_, b_;
  HazardTracker tracker_;
};

TEST_F(HazardTrackerTest, OrdersAReadAfterAWrite) {
  EXPECT_FALSE(add({write(0, 10)}));
  EXPECT_TRUE(add({read(9, 20)}));
}

TEST_F(HazardTrackerTest, OrdersAWriteAfterARead) {
  EXPECT_FALSE(add({read(0, 10)}));
  EXPECT_TRUE(add({write(5, 6)}));
}

TEST_F(HazardTrackerTest, OrdersAWriteAfterAWrite) {
  EXPECT_FALSE(add({write(0, 10)}));
  EXPECT_TRUE(add({write(0, 10)}));
}

TEST_F(HazardTrackerTest, LetsReadersRunTogether) {
  EXPECT_FALSE(add({read(0, 10)}));
  EXPECT_FALSE(add({read(0, 10)}));
}

TEST_F(HazardTrackerTest, LetsTouchingRangesRunTogether) {
  EXPECT_FALSE(add({write(0, 10)}));
  EXPECT_FALSE(add({write(10, 20)}));
  EXPECT_FALSE(add({read(20, 30)}));
}

TEST_F(HazardTrackerTest, TellsBuffersApart) {
  EXPECT_FALSE(add({write(0, 10)}));
  EXPECT_FALSE(add({range(b_, 0, 10, true)}));
}

TEST_F(HazardTrackerTest, ForgetsWhatIsBehindABarrier) {
  EXPECT_FALSE(add({write(0, 10), read(20, 30)}));
  EXPECT_TRUE(add({read(0, 10), write(40, 50)}));
  EXPECT_FALSE(add({write(20, 30)}));  // its reader is behind the barrier
  EXPECT_TRUE(add({read(40, 50)}));
}

TEST_F(HazardTrackerTest, RemembersALaunchThatNeededNoBarrier) {
  EXPECT_FALSE(add({write(0, 10)}));
  EXPECT_FALSE(add({write(10, 20)}));
  EXPECT_TRUE(add({read(0, 1)}));
}

}  // namespace
}  // namespace lily
