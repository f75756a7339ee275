// How many threads compute should use: what the scheduler, the cgroup and the hardware leave to this process.
#pragma once

#include <filesystem>
#include <vector>

namespace lily {

/// Cores that this process may use: affinity mask, cgroup CPU quota, one thread per physical core, no cores much slower
/// than the fastest. At least 1.
int usable_cores();

/// The most threads that are any good: a pool wakes all its threads for each stage, and each then looks for work for a
/// while, so that a stage takes as long as there are threads for each core.
inline constexpr int kMostThreadsPerCore = 8;  // some cores may be too slow to count as usable
int most_threads();

/// The parts of it that read Linux's files, below `root`, which is "/" but in tests.
///
/// Physical cores among these CPUs, without those of less than half the largest capacity.
int fast_cores(const std::vector<int>& cpus, const std::filesystem::path& root);
/// The CPU time that the process's cgroup and those around it grant, in cores; infinite when they set no limit.
double granted_cores(const std::filesystem::path& root);

}  // namespace lily
