// Broken kernels: each is found, and the message says what and where.
#include "device/emulated/emulator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "device/test_kernels.h"
#include "support/error.h"

namespace lily {
namespace {

std::string failure_of(const Entry& entry, std::uint64_t seed = 1) {
  emulated::Emulator emulator(seed);
  std::vector<float> memory(256, 0.F);
  void* arguments[] = {memory.data(), memory.data() + 128};
  try {
    emulator.run(entry, arguments, {2, 1, 1});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool mentions(const std::string& message, const std::string& what) {
  return message.find(what) != std::string::npos;
}

struct Broken {
  const Entry* entry;
  const char* message;
};

TEST(Emulator, FindsBrokenKernels) {
  const Broken all[] = {
      {&kernels::broken_leaves_before_barrier, "barrier"},
      {&kernels::broken_two_barriers, "the threads of a threadgroup diverge at a barrier"},
      {&kernels::broken_lanes_diverge, "the lanes of a simdgroup diverge at a simdgroup function"},
      {&kernels::broken_lane_missing, "simdgroup function"},
      {&kernels::broken_deadlock, "deadlock"},
      {&kernels::broken_too_much_memory, "32800 bytes of threadgroup memory, 32768 at most"},
      {&kernels::broken_never_waits, "left without wait_for_inputs()"},
  };
  for (const Broken& broken : all)
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      const std::string message = failure_of(*broken.entry, seed);
      EXPECT_TRUE(mentions(message, broken.message)) << broken.entry->name << ": " << message;
      EXPECT_TRUE(mentions(message, broken.entry->name)) << message;
    }
}

TEST(Emulator, SaysWhere) {
  EXPECT_TRUE(mentions(failure_of(kernels::broken_two_barriers), "broken.metal:")) << "file and line";
}

TEST(Emulator, RunsOnAfterAFailure) {
  emulated::Emulator emulator;
  std::vector<float> x(64, 1.F), y(64, 0.F);
  Scaling scaling{2, 64};
  void* broken[] = {y.data()};
  EXPECT_THROW(emulator.run(kernels::broken_deadlock, broken, {1, 1, 1}), Error);
  void* arguments[] = {x.data(), y.data(), &scaling};
  std::fill(y.begin(), y.end(), 0.F);
  emulator.run(kernels::scale_add_64, arguments, {1, 1, 1});
  EXPECT_EQ(y[63], 2);
}

TEST(Emulator, AMissingBarrierGivesGarbage) {
  emulated::Emulator emulator;
  std::vector<float> y(64, 0.F);
  void* arguments[] = {y.data()};
  emulator.run(kernels::broken_missing_barrier, arguments, {1, 1, 1});
  EXPECT_TRUE(std::ranges::any_of(y, [](float v) { return std::isnan(v); }));
}

}  // namespace
}  // namespace lily
