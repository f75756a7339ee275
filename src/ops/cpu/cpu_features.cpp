#include "ops/cpu/cpu_features.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>

#include <cstddef>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace lily::cpu {

bool has_avx_vnni() {
#if defined(__x86_64__) || defined(__i386__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool extended = __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && eax >= 1;  // the number of subleafs
  return extended && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax >> 4 & 1) != 0;
#else
  return false;
#endif
}

#if defined(__x86_64__) && defined(__linux__)

bool has_amx() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kTiles = 1U << 24U, kBytes = 1U << 25U;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0 || (edx & kTiles) == 0 || (edx & kBytes) == 0) return false;
  // Tiles are 8 KiB of state, which a process gets from Linux 5.16 on if it asks: arch/x86/include/uapi/asm/prctl.h.
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

#else

bool has_amx() {
  return false;
}

#endif

#if defined(__aarch64__) && defined(__APPLE__)

namespace {

bool has(const char* feature) {
  int value = 0;
  std::size_t size = sizeof(value);
  return sysctlbyname(feature, &value, &size, nullptr, 0) == 0 && value != 0;
}

}  // namespace

bool has_dotprod() {
  return has("hw.optional.arm.FEAT_DotProd");
}
bool has_i8mm() {
  return has("hw.optional.arm.FEAT_I8MM");
}

#elif defined(__aarch64__) && defined(__linux__)

bool has_dotprod() {
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}
bool has_i8mm() {
  return (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
}

#else

bool has_dotprod() {
  return false;
}
bool has_i8mm() {
  return false;
}

#endif

}  // namespace lily::cpu
