// How many threads compute should use: what the scheduler, the cgroup and the hardware leave to this process.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <thread>

#include "support/thread_pool.h"

#if defined(__linux__)
#include <sched.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace lily {
namespace {

#if defined(__linux__)
// Physical cores among the CPUs of the affinity mask: two hardware threads of one core share its vector units.
int affinity_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 0;
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    std::string siblings;
    if (!std::getline(file, siblings)) siblings = "cpu" + std::to_string(cpu);
    cores.insert(siblings);
  }
  return static_cast<int>(cores.size());
}

// The CPU time that the cgroup grants, in cores; infinite when it sets no limit. Version 2 has "quota period" in one
// file, version 1 has two files; inside a container both are seen at the root of the mount.
double cgroup_cores() {
  std::string quota;
  double period = 0;
  if (std::ifstream file("/sys/fs/cgroup/cpu.max"); file >> quota >> period) {
    if (quota != "max" && period > 0) return std::strtod(quota.c_str(), nullptr) / period;
    return std::numeric_limits<double>::infinity();
  }
  double microseconds = 0;
  std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  std::ifstream period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (quota_file >> microseconds && period_file >> period && microseconds > 0 && period > 0) {
    return microseconds / period;
  }
  return std::numeric_limits<double>::infinity();
}
#elif defined(__APPLE__)
// The performance cores: the efficiency cores are so much slower that they would mostly add barrier time.
int performance_cores() {
  std::int32_t count = 0;
  std::size_t size = sizeof(count);
  if (sysctlbyname("hw.perflevel0.physicalcpu", &count, &size, nullptr, 0) == 0 && count > 0) return count;
  if (sysctlbyname("hw.physicalcpu", &count, &size, nullptr, 0) == 0 && count > 0) return count;
  return 0;
}
#endif

}  // namespace

int usable_cores() {
  int cores = 0;
#if defined(__linux__)
  cores = affinity_cores();
  const double quota = cgroup_cores();
  if (cores > 0 && quota < cores) cores = static_cast<int>(std::ceil(quota));
#elif defined(__APPLE__)
  cores = performance_cores();
#endif
  if (cores <= 0) cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(cores, 1);
}

}  // namespace lily
