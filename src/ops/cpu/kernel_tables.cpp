#include "ops/cpu/kernel_tables.h"

#include <array>
#include <mutex>

#include "hwy/highway.h"
#include "hwy/targets.h"

namespace lily::cpu {
namespace {

struct Target {
  const char* name;
  std::int64_t bit;
};

// What the build compiles besides the portable code, best first; "portable" is what every CPU of this kind runs.
constexpr auto kTargets = std::to_array<Target>({
#if HWY_ARCH_X86
  {"avx512vnni", HWY_AVX3_DL}, {"avx512", HWY_AVX3}, {"avx2", HWY_AVX2},
#endif
      {"portable", HWY_STATIC_TARGET},
});

Kernels make_kernels(std::int64_t bit) {
  hwy::GetChosenTarget().Update(bit);
  Kernels kernels{};
  fill_row_kernels(kernels);
  fill_linear_kernels(kernels);
  fill_record_kernels(kernels);
  fill_integer_row_kernels(kernels);
  fill_integer_tile_kernels(kernels);
  fill_delta_kernels(kernels);
  fill_attention_kernels(kernels);
  fill_rate_kernels(kernels);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return kernels;
}

bool supported(const Target& target) {
  return target.bit == HWY_STATIC_TARGET || (hwy::SupportedTargets() & target.bit) != 0;
}

// All tables, made at the first use. Highway's chosen target is one per process, so it is set only here.
const std::array<Kernels, kTargets.size()>& all_kernels() {
  static const auto tables = [] {
    std::array<Kernels, kTargets.size()> made{};
    for (std::size_t i = 0; i < kTargets.size(); ++i) {
      if (supported(kTargets[i])) made[i] = make_kernels(kTargets[i].bit);
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
