#include "support/usable_cores.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace lily {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

// Version 2 has "quota period" in one file, version 1 has two files.
double quota_in(const std::filesystem::path& group) {
  std::string quota;
  double period = 0;
  if (std::ifstream file(group / "cpu.max"); file >> quota >> period) {
    return quota != "max" && period > 0 ? std::strtod(quota.c_str(), nullptr) / period : kNoLimit;
  }
  double microseconds = 0;
  std::ifstream quota_file(group / "cpu.cfs_quota_us");
  std::ifstream period_file(group / "cpu.cfs_period_us");
  if (quota_file >> microseconds && period_file >> period && microseconds > 0 && period > 0)
    return microseconds / period;
  return kNoLimit;
}

// The smallest quota of a group and those around it up to `mount`. Inside a container the group's name may be the one
// that it has outside: what is not there sets no limit.
double quota_up_to(const std::filesystem::path& mount, const std::string& name) {
  double cores = quota_in(mount);
  std::filesystem::path group = mount;
  for (const std::filesystem::path& part : std::filesystem::path(name).relative_path()) {
    if (part == "..") break;
    group /= part;
    cores = std::min(cores, quota_in(group));
  }
  return cores;
}

// Is `name` one of the names between commas?
bool names(const std::string& list, const std::string& name) {
  std::istringstream stream(list);
  for (std::string one; std::getline(stream, one, ',');) {
    if (one == name) return true;
  }
  return false;
}

#if defined(__linux__)
std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
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

// Two hardware threads of one core share its vector units. Work is handed out in small pieces, so a core of half the
// speed still helps; much slower ones (a phone's little cores have a sixth to a third) would have the others wait at
// every barrier.
int fast_cores(const std::vector<int>& cpus, const std::filesystem::path& root) {
  std::map<std::string, int> cores;  // siblings, capacity; 1024 is Linux's largest
  int largest = 0;
  for (const int cpu : cpus) {
    const std::filesystem::path folder = root / "sys/devices/system/cpu" / ("cpu" + std::to_string(cpu));
    std::string siblings;
    if (std::ifstream file(folder / "topology/thread_siblings_list"); !std::getline(file, siblings)) {
      siblings = "cpu" + std::to_string(cpu);
    }
    int capacity = 1024;
    if (std::ifstream file(folder / "cpu_capacity"); !(file >> capacity)) capacity = 1024;
    cores[siblings] = capacity;
    largest = std::max(largest, capacity);
  }
  return static_cast<int>(
      std::count_if(cores.begin(), cores.end(), [&](const auto& core) { return 2 * core.second >= largest; }));
}

double granted_cores(const std::filesystem::path& root) {
  const std::filesystem::path mount = root / "sys/fs/cgroup";
  double cores = std::min(quota_in(mount), quota_in(mount / "cpu"));
  std::ifstream groups(root /
                       "proc/self/cgroup");  // lines "0::/name" (version 2) and "4:cpu,cpuacct:/name" (version 1)
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string name = line.substr(second + 1);
    if (controllers.empty()) cores = std::min(cores, quota_up_to(mount, name));
    if (names(controllers, "cpu")) cores = std::min(cores, quota_up_to(mount / "cpu", name));
  }
  return cores;
}

int usable_cores() {
  int cores = 0;
#if defined(__linux__)
  cores = fast_cores(allowed_cpus(), "/");
  const double quota = granted_cores("/");
  if (cores > 0 && quota < cores) cores = static_cast<int>(std::ceil(quota));
#elif defined(__APPLE__)
  cores = performance_cores();
#endif
  if (cores <= 0) cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(cores, 1);
}

int most_threads() {
  return kMostThreadsPerCore * usable_cores();
}

}  // namespace lily
