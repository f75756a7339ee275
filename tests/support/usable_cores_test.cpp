// Which cores count, with trees of files as Linux shows them on other machines than this one.
#include "support/usable_cores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

namespace lily {
namespace {

namespace fs = std::filesystem;

class UsableCores : public testing::Test {
 protected:
  UsableCores() { fs::remove_all(root_); }
  ~UsableCores() override { fs::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  void put_cpu(int cpu, const std::string& siblings, int capacity = 0) {
    const std::string folder = "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/";
    put(folder + "topology/thread_siblings_list", siblings);
    if (capacity > 0) put(folder + "cpu_capacity", std::to_string(capacity));
  }

  const fs::path root_ =
      fs::path(testing::TempDir()) /
      ("usable_cores_test_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
};

TEST_F(UsableCores, IsSaneHere) {
  EXPECT_GE(usable_cores(), 1);
  EXPECT_LE(usable_cores(), std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
}

TEST_F(UsableCores, HardwareThreadsOfOneCoreCountOnce) {
  for (int cpu = 0; cpu < 8; ++cpu) put_cpu(cpu, std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4));
  EXPECT_EQ(fast_cores({0, 1, 2, 3, 4, 5, 6, 7}, root_), 4);
  EXPECT_EQ(fast_cores({0, 1, 4}, root_), 2);
  EXPECT_EQ(fast_cores({20, 21}, root_), 2);  // of which nothing is known
}

TEST_F(UsableCores, MuchSlowerCoresDoNotCount) {
  for (int cpu = 0; cpu < 4; ++cpu) put_cpu(cpu, std::to_string(cpu), 250);
  for (int cpu = 4; cpu < 7; ++cpu) put_cpu(cpu, std::to_string(cpu), 760);
  put_cpu(7, "7", 1024);
  EXPECT_EQ(fast_cores({0, 1, 2, 3, 4, 5, 6, 7}, root_), 4);
  EXPECT_EQ(fast_cores({0, 1, 2}, root_), 3);  // all that the process may use
}

TEST_F(UsableCores, NoFilesAreNoLimit) {
  EXPECT_TRUE(std::isinf(granted_cores(root_)));
}

TEST_F(UsableCores, QuotaOfAContainer) {
  put("sys/fs/cgroup/cpu.max", "150000 100000");
  put("proc/self/cgroup", "0::/");
  EXPECT_EQ(granted_cores(root_), 1.5);
  put("sys/fs/cgroup/cpu.max", "max 100000");
  EXPECT_TRUE(std::isinf(granted_cores(root_)));
}

// As systemd nests them: the smallest counts.
TEST_F(UsableCores, QuotaOfNestedGroups) {
  put("proc/self/cgroup", "0::/user.slice/lily.scope");
  put("sys/fs/cgroup/user.slice/cpu.max", "400000 100000");
  put("sys/fs/cgroup/user.slice/lily.scope/cpu.max", "max 100000");
  EXPECT_EQ(granted_cores(root_), 4);
  put("sys/fs/cgroup/user.slice/lily.scope/cpu.max", "50000 100000");
  EXPECT_EQ(granted_cores(root_), 0.5);
}

TEST_F(UsableCores, QuotaOfVersion1) {
  put("proc/self/cgroup", "5:cpuset:/other\n4:cpu,cpuacct:/box\n0::/");
  put("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "300000");
  put("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000");
  EXPECT_EQ(granted_cores(root_), 3);
  put("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "-1");
  EXPECT_TRUE(std::isinf(granted_cores(root_)));
}

// The group's name may be the host's, or lie outside of what the container sees.
TEST_F(UsableCores, GroupsThatAreNotThereSetNoLimit) {
  put("sys/fs/cgroup/cpu.max", "200000 100000");
  for (const char* group : {"0::/docker/0123", "0::/../other", "nonsense", "0:", ""}) {
    put("proc/self/cgroup", group);
    EXPECT_EQ(granted_cores(root_), 2) << group;
  }
}

#if defined(__linux__)
TEST_F(UsableCores, FollowsTheAffinityMask) {
  std::thread([] {  // the mask is a thread's
    cpu_set_t mask;
    ASSERT_EQ(sched_getaffinity(0, sizeof(mask), &mask), 0);
    int first = 0;
    while (!CPU_ISSET(first, &mask)) ++first;
    CPU_ZERO(&mask);
    CPU_SET(first, &mask);
    ASSERT_EQ(sched_setaffinity(0, sizeof(mask), &mask), 0);
    EXPECT_EQ(usable_cores(), 1);
    EXPECT_EQ(most_threads(), 8);
  })
      .join();
}
#endif

}  // namespace
}  // namespace lily
