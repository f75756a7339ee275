#include "device/checking_device.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "device/emulated/emulated_device.h"
#include "device/test_device.h"
#include "device/test_kernels.h"

namespace lily {
namespace {

class CheckingDeviceTest : public testing::Test {
 protected:
  std::unique_ptr<Buffer> filled(float value) {
    auto buffer = device_.allocate(64 * sizeof(float), Memory::kShared);
    std::ranges::fill(buffer->host_as<float>(), value);
    return buffer;
  }
  KernelVerdict verdict() { return device_.verdicts().at(0); }

  CheckingDevice device_{make_emulated_device()};
};

TEST_F(CheckingDeviceTest, FindsRightKernelsRight) {
  const auto x = filled(2), y = filled(1);
  device_.dispatch(kernels::scale_add_64, {}, x->view<float>(), y->view<float>(), Scaling{3, 64});
  const auto step = device_.record();
  device_.submit(*step);
  device_.wait(device_.submit(*step));
  EXPECT_EQ(y->host_as<float>()[63], 13);
  EXPECT_EQ(verdict().name, "scale_add_64");
  EXPECT_EQ(verdict().launches, 2U);
  EXPECT_TRUE(verdict().right(0));
}

TEST_F(CheckingDeviceTest, SeesWhatTheHostWrote) {
  const auto x = filled(2), y = filled(1);
  for (int i = 0; i < 2; ++i) {
    device_.dispatch(kernels::scale_add_64, {}, x->view<float>(), y->view<float>(), Scaling{1, 64});
    device_.wait(device_.submit());
    std::ranges::fill(x->host_as<float>(), 5.F);
  }
  EXPECT_EQ(y->host_as<float>()[0], 8);
  EXPECT_TRUE(verdict().right(0));
}

TEST_F(CheckingDeviceTest, FindsAnswersThatDependOnTheOrderOfThreads) {
  const auto y = filled(0);
  device_.dispatch(kernels::broken_missing_barrier, {}, y->view<float>());
  device_.wait(device_.submit());
  EXPECT_FALSE(verdict().right(0.5));
}

TEST_F(CheckingDeviceTest, LetsAtomicsChooseTheOrder) {
  std::vector<unsigned> values(64);
  for (unsigned i = 0; i < 64; ++i) values[i] = i;
  const auto x = device_.map(std::as_bytes(std::span(values)));
  const auto counts = device_.allocate(32, Memory::kShared), extremes = device_.allocate(8, Memory::kShared);
  std::ranges::fill(counts->host_as<unsigned>(), 0U);
  std::ranges::fill(extremes->host_as<int>(), 0);
  device_.dispatch(kernels::histogram_64, {}, x->view<unsigned>(), counts->view<atomic_uint>(),
                   extremes->view<atomic_int>(), 64U);
  device_.wait(device_.submit());
  EXPECT_TRUE(verdict().right(0));
}

TEST_F(CheckingDeviceTest, ReportsWhatCannotRun) {
  class Failing : public Device {
   public:
    const DeviceInfo& info() const override { return inner_->info(); }

   protected:
    std::unique_ptr<Buffer> do_allocate(std::size_t bytes, Memory memory) override {
      return inner_->allocate(bytes, memory);
    }
    std::unique_ptr<Buffer> do_map(std::span<const std::byte> bytes) override { return inner_->map(bytes); }
    void do_write(Buffer& buffer, std::size_t offset, std::span<const std::byte> bytes) override {
      inner_->write(buffer, offset, bytes);
    }
    void do_read(const Buffer& buffer, std::size_t offset, std::span<std::byte> out) override {
      inner_->read(buffer, offset, out);
    }
    void do_submit(const CommandList&, Ticket) override { throw Error("does not compile"); }
    void do_wait(Ticket) override {}
    bool do_done(Ticket) override { return true; }

   private:
    std::unique_ptr<Device> inner_ = make_emulated_device();
  };
  CheckingDevice device(std::make_unique<Failing>());
  const auto y = device.allocate(64 * sizeof(float), Memory::kShared);
  device.dispatch(kernels::broken_never_waits, {}, y->view<float>());
  EXPECT_THROW(device.wait(device.submit()), Error);  // the emulator's own complaint
  const auto x = device.allocate(64 * sizeof(float), Memory::kShared);
  std::ranges::fill(x->host_as<float>(), 1.F);
  std::ranges::fill(y->host_as<float>(), 1.F);
  device.dispatch(kernels::scale_add_64, {}, x->view<float>(), y->view<float>(), Scaling{1, 64});
  device.wait(device.submit());
  const auto verdicts = device.verdicts();
  ASSERT_EQ(verdicts.size(), 2U);
  EXPECT_EQ(verdicts[1].failure, "does not compile");
  EXPECT_FALSE(verdicts[1].right(1));
  EXPECT_EQ(y->host_as<float>()[0], 2);  // the right values go on
}

}  // namespace
}  // namespace lily
