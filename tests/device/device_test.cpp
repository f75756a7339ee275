// What every Device promises, on each that this machine has.
#include "device/device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "device/emulated/emulated_device.h"
#include "device/test_device.h"
#include "device/test_kernels.h"

namespace lily {
namespace {

class DeviceTest : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Buffer> filled(std::size_t count, float value) {
    auto buffer = device_->allocate(count * sizeof(float), Memory::kShared);
    std::ranges::fill(buffer->host_as<float>(), value);
    return buffer;
  }
  /// y = factor * x + y
  void scale_add(const Buffer& x, const Buffer& y, float factor) {
    const auto count = static_cast<unsigned>(y.size() / sizeof(float));
    device_->dispatch(kernels::scale_add_64, {.groups = {(count + 63) / 64}}, x.view<float>(), y.view<float>(),
                      Scaling{factor, count});
  }
  std::unique_ptr<Device> device_ = make_test_device(GetParam());
};

TEST_P(DeviceTest, RunsLaunchesInTheOrderOfTheirNeeds) {
  const auto x = filled(1000, 1), y = filled(1000, 0), z = filled(1000, 0);
  scale_add(*x, *y, 2);
  scale_add(*y, *z, 3);
  scale_add(*z, *y, 10);
  device_->wait(device_->submit());
  EXPECT_EQ(y->host_as<float>()[999], 62);
  EXPECT_EQ(z->host_as<float>()[999], 6);
  EXPECT_EQ(device_->counters().dispatches, 3U);
  EXPECT_EQ(device_->counters().stages, 3U);
}

TEST_P(DeviceTest, PutsNoBarrierBetweenIndependentLaunches) {
  const auto x = filled(64, 1), y = filled(64, 0), z = filled(64, 0), sum = filled(64, 0);
  scale_add(*x, *y, 2);
  scale_add(*x, *z, 3);
  scale_add(*y, *sum, 1);
  device_->wait(device_->submit());
  EXPECT_EQ(device_->counters().dispatches, 3U);
  EXPECT_EQ(device_->counters().stages, 2U);
  EXPECT_EQ(sum->host_as<float>()[5], 2);
}

TEST_P(DeviceTest, OrdersSubmissions) {
  const auto x = filled(640, 1), y = filled(640, 0);
  for (int i = 0; i < 20; ++i) {
    scale_add(*x, *y, 1);
    device_->submit();
  }
  device_->wait();
  EXPECT_EQ(y->host_as<float>()[639], 20);
}

TEST_P(DeviceTest, RepeatsAStep) {
  const auto x = filled(64, 1), y = filled(64, 0), z = filled(64, 0);
  scale_add(*x, *y, 1);
  scale_add(*y, *z, 1);
  const auto step = device_->record();
  EXPECT_EQ(device_->counters().dispatches, 0U);
  EXPECT_EQ(step->counters().dispatches, 2U);
  EXPECT_EQ(step->counters().stages, 2U);
  Device::Ticket last = 0;
  for (int i = 0; i < 4; ++i) last = device_->submit(*step);
  scale_add(*x, *z, 100);
  device_->wait(device_->submit());
  EXPECT_TRUE(device_->done(last));
  EXPECT_EQ(z->host_as<float>()[63], 1 + 2 + 3 + 4 + 100);
  EXPECT_EQ(device_->counters().dispatches, 9U);
}

TEST_P(DeviceTest, RunsWhatWasDispatchedBeforeAStepFirst) {
  const auto x = filled(64, 1), y = filled(64, 0), z = filled(64, 0);
  scale_add(*y, *z, 1);
  const auto step = device_->record();
  scale_add(*x, *y, 5);
  device_->wait(device_->submit(*step));
  EXPECT_EQ(z->host_as<float>()[0], 5);
}

TEST_P(DeviceTest, AKernelMayAskForWeightsEarly) {
  const auto weight = filled(640, 3), x = filled(640, 1), y = filled(640, 0), z = filled(640, 0);
  for (int i = 0; i < 8; ++i) {
    scale_add(*x, *y, 1);
    device_->dispatch(kernels::weigh_64, {.groups = {10}}, weight->view<float>(), y->view<float>(), z->view<float>());
  }
  const auto step = device_->record();
  device_->wait(device_->submit(*step));
  for (const float value : z->host_as<float>()) ASSERT_EQ(value, 24);
}

TEST_P(DeviceTest, ReadsAndWritesDeviceMemory) {
  const auto y = device_->allocate(400, Memory::kDevice);
  const auto x = filled(100, 2);
  std::vector<float> values(100);
  std::iota(values.begin(), values.end(), 0.F);
  device_->write(*y, 0, std::as_bytes(std::span(values)));
  scale_add(*x, *y, 1);
  std::vector<float> out(10);
  device_->read(*y, 40, std::as_writable_bytes(std::span(out)));
  EXPECT_EQ(out[0], 12);
  EXPECT_EQ(out[9], 21);
}

TEST_P(DeviceTest, MapsHostMemory) {
  std::vector<float> weights(256, 4);
  const auto mapped = device_->map(std::as_bytes(std::span(weights)));
  const auto y = filled(256, 1);
  scale_add(*mapped, *y, 2);
  device_->wait(device_->submit());
  EXPECT_EQ(y->host_as<float>()[255], 9);
}

TEST_P(DeviceTest, LaunchesOnPartsOfABuffer) {
  const auto x = filled(128, 1), y = filled(128, 0);
  device_->dispatch(kernels::scale_add_64, {}, x->view<float>(), y->view<float>().part(64, 64), Scaling{7, 64});
  device_->dispatch(kernels::scale_add_64, {}, x->view<float>(), y->view<float>().part(0, 64), Scaling{5, 64});
  device_->wait(device_->submit());
  EXPECT_EQ(device_->counters().stages, 1U);
  EXPECT_EQ(y->host_as<float>()[63], 5);
  EXPECT_EQ(y->host_as<float>()[64], 7);
}

TEST_P(DeviceTest, RefusesWhatDoesNotFit) {
  const std::size_t budget = device_->info().memory_budget;
  try {
    device_->allocate(budget + 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("does not fit"), std::string::npos) << error.what();
  }
}

TEST_P(DeviceTest, GivesMemoryBack) {
  const std::size_t before = device_->memory_in_use();
  auto buffer = device_->allocate(1 << 20);
  EXPECT_EQ(device_->memory_in_use(), before + (1 << 20));
  buffer.reset();
  EXPECT_EQ(device_->memory_in_use(), before);
}

TEST_P(DeviceTest, CountsWeightBytes) {
  const auto x = filled(64, 1), y = filled(64, 0);
  device_->dispatch(kernels::scale_add_64, {.weight_bytes = 256}, x->view<float>(), y->view<float>(), Scaling{1, 64});
  EXPECT_EQ(device_->record()->counters().weight_bytes, 256U);
}

// ---- the dialect's functions, against plain C++ ----

TEST_P(DeviceTest, LanesMeet) {
  constexpr int kT = 64;
  std::vector<float> v(kT * 2);
  for (int i = 0; i < kT * 2; ++i) v[i] = static_cast<float>(i * 37 % 61);
  const auto x = device_->map(std::as_bytes(std::span(v)));
  const auto out = device_->allocate(2 * 18 * kT * sizeof(float), Memory::kShared);
  device_->dispatch(kernels::lanes_64, {.groups = {2}}, x->view<float>(), out->view<float>());
  device_->wait(device_->submit());
  for (int thread = 0; thread < 2 * kT; ++thread) {
    const int lane = thread % 32, tid = thread % kT;
    const std::span<const float> group = std::span(v).subspan(thread - lane, 32);
    const auto row = [&](int r) { return out->host_as<float>()[thread / kT * 18 * kT + r * kT + tid]; };
    const float sum = std::accumulate(group.begin(), group.end(), 0.F);
    const float before = std::accumulate(group.begin(), group.begin() + lane, 0.F);
    EXPECT_EQ(row(0), sum);
    EXPECT_EQ(row(1), std::ranges::max(group));
    EXPECT_EQ(row(2), std::ranges::min(group));
    EXPECT_EQ(row(3), before + group[lane]);
    EXPECT_EQ(row(4), before);
    EXPECT_EQ(row(5), group[31 - lane]);
    EXPECT_EQ(row(6), group[lane ^ 5]);
    EXPECT_EQ(row(7), group[lane < 29 ? lane + 3 : lane]);
    EXPECT_EQ(row(8), group[lane >= 3 ? lane - 3 : lane]);
    EXPECT_EQ(row(9), group[7]);
    EXPECT_EQ(row(10), group[0]);
    EXPECT_EQ(row(11), std::ranges::any_of(group, [](float f) { return f > 30; }) ? 1 : 0);
    EXPECT_EQ(row(12), std::ranges::all_of(group, [](float f) { return f < 30; }) ? 1 : 0);
    EXPECT_EQ(row(13), static_cast<float>(tid * 1000 + tid / 32 * 100 + lane));
    EXPECT_EQ(row(14), static_cast<float>(kT * 1000 + 2 * 100 + kT / 32));
    EXPECT_EQ(row(15), 31 * 32 / 2);
    EXPECT_EQ(row(16), -9);
    EXPECT_EQ(row(17), static_cast<float>(lane * (lane - 1) / 2));
  }
}

TEST_P(DeviceTest, AtomicsCount) {
  std::vector<unsigned> values(1000);
  for (unsigned i = 0; i < 1000; ++i) values[i] = i * i % 197;
  const auto x = device_->map(std::as_bytes(std::span(values)));
  const auto counts = device_->allocate(32, Memory::kShared), extremes = device_->allocate(8, Memory::kShared);
  std::ranges::fill(counts->host_as<unsigned>(), 0U);
  extremes->host_as<int>()[0] = 1000;
  extremes->host_as<int>()[1] = -1000;
  device_->dispatch(kernels::histogram_64, {.groups = {16}}, x->view<unsigned>(), counts->view<atomic_uint>(),
                    extremes->view<atomic_int>(), 1000U);
  device_->wait(device_->submit());
  for (unsigned i = 0; i < 8; ++i) {
    EXPECT_EQ(counts->host_as<unsigned>()[i], std::ranges::count_if(values, [&](unsigned v) { return v % 8 == i; }));
  }
  EXPECT_EQ(extremes->host_as<int>()[0], static_cast<int>(std::ranges::min(values)) - 100);
  EXPECT_EQ(extremes->host_as<int>()[1], static_cast<int>(std::ranges::max(values)) - 100);
}

TEST_P(DeviceTest, TilesMultiply) {
  std::vector<bfloat> a(32 * 64), b(64 * 64);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = bfloat(static_cast<float>(i * 7 % 31) - 15);
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = bfloat(static_cast<float>(i * 11 % 29) / 8);
  const auto left = device_->map(std::as_bytes(std::span(a))), right = device_->map(std::as_bytes(std::span(b)));
  const auto c = device_->allocate(32 * 64 * sizeof(float), Memory::kShared);
  device_->dispatch(kernels::product_64, {}, left->view<bfloat>(), right->view<bfloat>(), c->view<float>());
  device_->wait(device_->submit());
  for (int m = 0; m < 32; ++m)
    for (int n = 0; n < 64; ++n) {
      double sum = 0;
      for (int k = 0; k < 64; ++k) sum += double(float(a[m * 64 + k])) * float(b[n * 64 + k]);
      ASSERT_EQ(c->host_as<float>()[m * 64 + n], sum) << m << ", " << n;  // exact: small multiples of 1/8
    }
}

INSTANTIATE_TEST_SUITE_P(All, DeviceTest, testing::ValuesIn(test_device_names()),
                         [](const auto& instance) { return instance.param; });

// ---- the emulated device's own ----

TEST(EmulatedDevice, RunsAtTheWait) {
  const auto device = make_emulated_device();
  const auto x = device->allocate(256, Memory::kShared), y = device->allocate(256, Memory::kShared);
  std::ranges::fill(x->host_as<float>(), 1.F);
  std::ranges::fill(y->host_as<float>(), 0.F);
  device->dispatch(kernels::scale_add_64, {}, x->view<float>(), y->view<float>(), Scaling{1, 64});
  const auto ticket = device->submit();
  EXPECT_EQ(y->host_as<float>()[0], 0);  // a host that reads too early sees it
  device->wait(ticket);
  EXPECT_EQ(y->host_as<float>()[0], 1);
}

TEST(EmulatedDevice, NewMemoryIsNaN) {
  const auto device = make_emulated_device();
  const auto x = device->allocate(4, Memory::kShared);
  EXPECT_TRUE(std::isnan(x->host_as<float>()[0]));
}

TEST(EmulatedDeviceDeathTest, RefusesAWrongLaunch) {
  const auto device = make_emulated_device();
  const auto x = device->allocate(256), y = device->allocate(256);
  const auto launch = [&](View<const float> in, View<float> out) {
    device->dispatch(kernels::scale_add_64, {}, in, out, Scaling{1, 64});
  };
  EXPECT_DEATH(launch(y->view<float>(), y->view<float>()), "internal error");    // the output is the input
  EXPECT_DEATH(launch({y.get(), 2, 4}, x->view<float>()), "internal error");     // misaligned
  EXPECT_DEATH(launch({y.get(), 128, 64}, x->view<float>()), "internal error");  // past the end
  EXPECT_DEATH(launch({nullptr, 0, 64}, x->view<float>()), "internal error");    // no buffer
  EXPECT_DEATH(y->view<float>().part(60, 5), "internal error");
}

TEST(DeviceKind, IsParsed) {
  EXPECT_EQ(parse_device_kind("cuda"), DeviceKind::kCuda);
  EXPECT_EQ(to_string(DeviceKind::kEmulated), "emulated");
  EXPECT_THROW(parse_device_kind("gpu"), Error);
  EXPECT_EQ(make_device(DeviceKind::kCpu), nullptr);
}

TEST(DeviceKind, WhatIsNotThereSaysSo) {
  if (make_device(DeviceKind::kAuto) != nullptr) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_THROW(make_device(DeviceKind::kMetal), Error);
  EXPECT_THROW(make_device(DeviceKind::kCuda), Error);
}

}  // namespace
}  // namespace lily
