#include "ops/cpu/kernel_tables.h"

#include <array>
#include <mutex>

#include "hwy/highway.h"
#include "hwy/targets.h"
#include "ops/cpu/cpu_features.h"

namespace lily::cpu {
namespace {

struct Target {
  const char* name;
  std::int64_t bit;  // Highway's target
  // What the target does not say: is it there, and the kernels that use it.
  bool (*found)() = nullptr;
  void (*fill)(Kernels& kernels) = nullptr;
};

#ifdef LILY_HAS_AVX2VNNI
void fill_avx2vnni(Kernels& kernels) {
  fill_integer_row_kernels_avx2vnni(kernels);
  fill_integer_tile_kernels_avx2vnni(kernels);
  fill_rate_kernels_avx2vnni(kernels);
}
#endif
#ifdef LILY_HAS_DOTPROD
void fill_dotprod(Kernels& kernels) {
  fill_integer_row_kernels_dotprod(kernels);
  fill_integer_tile_kernels_dotprod(kernels);
  fill_rate_kernels_dotprod(kernels);
}
#endif
#ifdef LILY_HAS_I8MM
void fill_i8mm(Kernels& kernels) {
  fill_dotprod(kernels);
  fill_integer_tile_kernels_i8mm(kernels);
  fill_rate_kernels_i8mm(kernels);
}
bool has_dotprod_and_i8mm() {
  return has_dotprod() && has_i8mm();
}
#endif

#if HWY_ARCH_ARM_A64 && HWY_STATIC_TARGET != HWY_EMU128
constexpr const char* kEveryCpu = "neon";
#else
constexpr const char* kEveryCpu = "portable";
#endif

// What the build compiles besides the code that every CPU of this kind runs, best first.
constexpr auto kTargets = std::to_array<Target>({
#if HWY_ARCH_X86
  {"avx512amx", HWY_AVX3_DL, has_amx, fill_amx_kernels}, {"avx512vnni", HWY_AVX3_DL}, {"avx512", HWY_AVX3},
#ifdef LILY_HAS_AVX2VNNI
      {"avx2vnni", HWY_AVX2, has_avx_vnni, fill_avx2vnni},
#endif
      {"avx2", HWY_AVX2},
#elif defined(LILY_HAS_DOTPROD) && defined(LILY_HAS_I8MM)
  {"neoni8mm", HWY_STATIC_TARGET, has_dotprod_and_i8mm, fill_i8mm},
      {"neondotprod", HWY_STATIC_TARGET, has_dotprod, fill_dotprod},
#endif
      {kEveryCpu, HWY_STATIC_TARGET},
});

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
  if (target.fill) target.fill(kernels);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return kernels;
}

bool supported(const Target& target) {
  const std::int64_t compiled = HWY_TARGETS;  // a portable build has one
  const bool by_highway = target.bit == HWY_STATIC_TARGET || (hwy::SupportedTargets() & compiled & target.bit) != 0;
  return by_highway && (!target.found || target.found());
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
