#include "ops/cpu/kernel_tables.h"

#include <array>
#include <mutex>

#include "hwy/highway.h"
#include "hwy/targets.h"

#ifdef LILY_HAS_DOTPROD
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace lily::cpu {
namespace {

struct Target {
  const char* name;
  std::int64_t bit;
  bool dotprod = false;  // with ARM's dot product, which is none of Highway's targets
};

#if HWY_ARCH_ARM_A64 && HWY_STATIC_TARGET != HWY_EMU128
constexpr const char* kEveryCpu = "neon";
#else
constexpr const char* kEveryCpu = "portable";
#endif

// What the build compiles besides the code that every CPU of this kind runs, best first.
constexpr auto kTargets = std::to_array<Target>({
#if HWY_ARCH_X86
  {"avx512vnni", HWY_AVX3_DL}, {"avx512", HWY_AVX3}, {"avx2", HWY_AVX2},
#elif defined(LILY_HAS_DOTPROD)
  {"neondotprod", HWY_STATIC_TARGET, true},
#endif
      {kEveryCpu, HWY_STATIC_TARGET},
});

bool has_dotprod() {
#ifdef LILY_HAS_DOTPROD
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
  return false;
#endif
}

Kernels make_kernels(const Target& target) {
  hwy::GetChosenTarget().Update(target.bit);
  Kernels kernels{};
  fill_row_kernels(kernels);
  fill_linear_kernels(kernels);
  fill_record_kernels(kernels);
  fill_integer_row_kernels(kernels);
  fill_integer_tile_kernels(kernels);
  fill_delta_kernels(kernels);
  fill_attention_kernels(kernels);
  fill_rate_kernels(kernels);
#ifdef LILY_HAS_DOTPROD
  if (target.dotprod) {
    fill_integer_row_kernels_dotprod(kernels);
    fill_integer_tile_kernels_dotprod(kernels);
    fill_rate_kernels_dotprod(kernels);
  }
#endif
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return kernels;
}

bool supported(const Target& target) {
  if (target.dotprod) return has_dotprod();
  return target.bit == HWY_STATIC_TARGET || (hwy::SupportedTargets() & target.bit) != 0;
}

// All tables, made at the first use. Highway's chosen target is one per process, so it is set only here.
const std::array<Kernels, kTargets.size()>& all_kernels() {
  static const auto tables = [] {
    std::array<Kernels, kTargets.size()> made{};
    for (std::size_t i = 0; i < kTargets.size(); ++i) {
      if (supported(kTargets[i])) made[i] = make_kernels(kTargets[i]);
    }
    return made;
  }();
  return tables;
}

}  // namespace

std::vector<std::string> kernel_targets() {
  std::vector<std::string> names;
  for (const Target& target : kTargets) {
    if (supported(target)) names.emplace_back(target.name);
  }
  return names;
}

const Kernels* find_kernels(std::string_view name) {
  for (std::size_t i = 0; i < kTargets.size(); ++i) {
    if (supported(kTargets[i]) && (name.empty() || name == kTargets[i].name)) return &all_kernels()[i];
  }
  return nullptr;
}

}  // namespace lily::cpu
