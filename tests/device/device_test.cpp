#include "device/device.h"

#include <gtest/gtest.h>

#include "kernels/kernels.h"

namespace lily {
namespace {

TEST(Device, RunsAKernelAtTheWait) {
  const auto device = make_device(DeviceKind::kEmulated);
  const auto x = device->allocate(4000, Memory::kShared);
  device->dispatch(kernels::zero_words, {.groups = {2}}, x->view<uint>(), 900U);
  const auto ticket = device->submit();
  EXPECT_EQ(x->host_as<uint>()[0], ~0U);
  device->wait(ticket);
  EXPECT_EQ(x->host_as<uint>()[0], 0U);
  EXPECT_EQ(x->host_as<uint>()[899], 0U);
  EXPECT_EQ(x->host_as<uint>()[900], ~0U);
}

}  // namespace
}  // namespace lily
