// Linux: MemTotal and MemAvailable of /proc/meminfo, bounded by every control group from this process's up to the root
// (version 2: memory.max, memory.current, memory.stat; version 1: memory.limit_in_bytes and so on). File caches that
// are charged to a group count as available, as they do in MemAvailable. macOS: hw.memsize and the free, inactive and
// purgeable pages.
#include "support/machine_memory.h"

#ifdef __APPLE__
#include <mach/mach.h>
#include <sys/sysctl.h>
#endif

#include <algorithm>
#include <fstream>
#include <string>

namespace lily {

#ifdef __linux__
namespace {

namespace fs = std::filesystem;

std::optional<std::uint64_t> read_number(const fs::path& file) {
  std::uint64_t value = 0;
  if (std::ifstream(file) >> value) return value;  // "max" is no number: no limit
  return std::nullopt;
}

/// "NAME value" or "NAME: value kB" lines.
std::optional<std::uint64_t> read_field(const fs::path& file, const std::string& name) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(name) || line.size() == name.size()) continue;
    if (line[name.size()] != ' ' && line[name.size()] != ':') continue;
    std::uint64_t value = 0;
    const std::size_t digits = line.find_first_of("0123456789", name.size());
    if (digits == std::string::npos) return std::nullopt;
    for (std::size_t i = digits; i < line.size() && line[i] >= '0' && line[i] <= '9'; ++i) {
      value = value * 10 + static_cast<std::uint64_t>(line[i] - '0');
    }
    return line.ends_with("kB") ? value * 1024 : value;
  }
  return std::nullopt;
}

/// The names that one version of control groups uses.
struct GroupFiles {
  const char* mount;
  const char* limit;
  const char* usage;
  const char* cache;  // in memory.stat
};
constexpr GroupFiles kVersion2 = {"sys/fs/cgroup", "memory.max", "memory.current", "file"};
constexpr GroupFiles kVersion1 = {"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                                  "total_cache"};

void apply_group(const fs::path& group, const GroupFiles& files, MachineMemory& memory) {
  const auto limit = read_number(group / files.limit);
  const auto usage = read_number(group / files.usage);
  if (!limit || !usage) return;
  const std::uint64_t cache = std::min(*usage, read_field(group / "memory.stat", files.cache).value_or(0));
  const std::uint64_t held = *usage - cache;
  memory.total = std::min(memory.total, *limit);
  memory.available = std::min(memory.available, *limit > held ? *limit - held : 0);
}

/// Inside a container the named group may lie outside of what is mounted: the walk still ends at the mount.
void apply_groups(const fs::path& root, std::string group, const GroupFiles& files, MachineMemory& memory) {
  const fs::path mount = root / files.mount;
  while (!group.empty() && group != "/") {
    apply_group(mount / group.substr(1), files, memory);
    group.resize(std::min(group.size() - 1, group.find_last_of('/')));
  }
  apply_group(mount, files, memory);
}

}  // namespace

std::optional<MachineMemory> machine_memory_at(const fs::path& root) {
  const auto total = read_field(root / "proc/meminfo", "MemTotal");
  const auto available = read_field(root / "proc/meminfo", "MemAvailable");
  if (!total || !available) return std::nullopt;
  MachineMemory memory{.total = *total, .available = *available};
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "0::/path" or "4:memory:/path"
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (path.empty() || path.front() != '/') continue;
    if (controllers.empty()) apply_groups(root, path, kVersion2, memory);
    if (controllers == "memory") apply_groups(root, path, kVersion1, memory);
  }
  return memory;
}

std::optional<MachineMemory> machine_memory() {
  return machine_memory_at("/");
}

#elif defined(__APPLE__)

std::optional<MachineMemory> machine_memory() {
  MachineMemory memory;
  std::size_t size = sizeof(memory.total);
  if (::sysctlbyname("hw.memsize", &memory.total, &size, nullptr, 0) != 0) return std::nullopt;
  vm_statistics64_data_t pages{};
  mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
  vm_size_t page_size = 0;
  const mach_port_t host = mach_host_self();
  const bool known =
      host_statistics64(host, HOST_VM_INFO64, reinterpret_cast<host_info64_t>(&pages), &count) == KERN_SUCCESS &&
      host_page_size(host, &page_size) == KERN_SUCCESS;
  mach_port_deallocate(mach_task_self(), host);
  if (!known) return std::nullopt;
  const std::uint64_t free_pages = std::uint64_t{pages.free_count} + pages.inactive_count + pages.purgeable_count;
  memory.available = std::min(memory.total, free_pages * page_size);
  return memory;
}

#else

std::optional<MachineMemory> machine_memory() {
  return std::nullopt;
}

#endif

}  // namespace lily
