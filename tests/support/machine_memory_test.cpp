// Available memory on Linux, from made-up /proc and /sys trees.
#include "support/machine_memory.h"

#include <gtest/gtest.h>

#include <string>

#include "checkpoint/test_files.h"

namespace lily {
namespace {

#ifdef __linux__

constexpr std::uint64_t kGib = std::uint64_t{1} << 30;

class MachineMemoryTest : public ::testing::Test {
 protected:
  MachineMemoryTest() {
    write("proc/meminfo", "MemTotal:       33554432 kB\nMemFree: 1 kB\nMemAvailable:   25165824 kB\n");  // 32, 24 GiB
  }
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = directory_.path() / path;
    std::filesystem::create_directories(file.parent_path());
    test::write_bytes(file, text);
  }
  MachineMemory read() { return machine_memory_at(directory_.path()).value(); }

  test::TemporaryDirectory directory_;
};

TEST_F(MachineMemoryTest, WithoutGroupsItIsTheSystemsEstimate) {
  EXPECT_EQ(read().total, 32 * kGib);
  EXPECT_EQ(read().available, 24 * kGib);
}

TEST_F(MachineMemoryTest, Version2GroupsBoundItAndTheirCachesCountAsFree) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/b/memory.max", "max\n");
  write("sys/fs/cgroup/a/b/memory.current", "1\n");
  write("sys/fs/cgroup/a/memory.max", std::to_string(8 * kGib));
  write("sys/fs/cgroup/a/memory.current", std::to_string(6 * kGib));
  write("sys/fs/cgroup/a/memory.stat", "anon 1\nfile_mapped 7\nfile " + std::to_string(5 * kGib) + "\n");
  EXPECT_EQ(read().total, 8 * kGib);
  EXPECT_EQ(read().available, 7 * kGib);
}

TEST_F(MachineMemoryTest, ContainersSeeTheirGroupAtTheMount) {
  write("proc/self/cgroup", "0::/../../somewhere\n");
  write("sys/fs/cgroup/memory.max", std::to_string(2 * kGib));
  write("sys/fs/cgroup/memory.current", std::to_string(3 * kGib));  // over the limit
  EXPECT_EQ(read().available, 0U);
}

TEST_F(MachineMemoryTest, Version1GroupsBoundIt) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/x\n");
  write("sys/fs/cgroup/memory/x/memory.limit_in_bytes", std::to_string(4 * kGib));
  write("sys/fs/cgroup/memory/x/memory.usage_in_bytes", std::to_string(2 * kGib));
  write("sys/fs/cgroup/memory/x/memory.stat", "cache 1\ntotal_cache " + std::to_string(kGib) + "\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "100\n");
  EXPECT_EQ(read().available, 3 * kGib);
}

TEST_F(MachineMemoryTest, StrangeFilesAreIgnored) {
  write("proc/self/cgroup", "\n:\n0:\n::\n0::\n4:memory:relative\n0::/a//\n");
  EXPECT_EQ(read().available, 24 * kGib);
  write("proc/meminfo", "nothing\n");
  EXPECT_FALSE(machine_memory_at(directory_.path()).has_value());
}

#endif

TEST(MachineMemory, ThisMachineHasSome) {
  const auto memory = machine_memory();
  ASSERT_TRUE(memory.has_value());
  EXPECT_GT(memory->available, 0U);
  EXPECT_LE(memory->available, memory->total);
}

}  // namespace
}  // namespace lily
