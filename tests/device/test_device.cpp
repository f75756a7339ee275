#include "device/test_device.h"

#include "device/emulated/emulated_device.h"
#include "device/test_kernels.h"
#ifdef LILY_HAS_CUDA
#include "device/cuda/cuda_device.h"
#endif
#ifdef LILY_HAS_METAL
#include "device/metal/metal_device.h"
#endif
#ifdef LILY_SOFT_METAL
#include "device/soft_metal/soft_metal.h"
#endif

namespace lily {

std::vector<std::string> test_device_names() {
  std::vector<std::string> names = {"emulated_1", "emulated_2", "emulated_3"};
#ifdef LILY_HAS_CUDA
  if (cuda_available()) names.push_back("cuda");
#endif
#ifdef LILY_HAS_METAL
  if (metal_available()) names.push_back("metal");
#endif
  return names;
}

std::unique_ptr<Device> make_test_device(const std::string& name) {
#ifdef LILY_HAS_CUDA
  if (name == "cuda") return make_cuda_device(embedded::test_cuda_images());
#endif
#ifdef LILY_SOFT_METAL
  static const bool added = [] {
    soft_metal::add_entries(kernels::test_entries);
    return true;
  }();
  static_cast<void>(added);
#endif
#ifdef LILY_HAS_METAL
  if (name == "metal") return make_metal_device({.sources = embedded::test_metal_sources()});
#endif
  return make_emulated_device({.seed = static_cast<std::uint64_t>(name.back() - '0')});
}

}  // namespace lily
