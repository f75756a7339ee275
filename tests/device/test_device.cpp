#include "device/test_device.h"

#include "device/emulated/emulated_device.h"
#include "device/test_kernels.h"
#ifdef LILY_HAS_CUDA
#include "device/cuda/cuda_device.h"
#endif

namespace lily {

std::vector<std::string> test_device_names() {
  std::vector<std::string> names = {"emulated_1", "emulated_2", "emulated_3"};
#ifdef LILY_HAS_CUDA
  if (cuda_available()) names.push_back("cuda");
#endif
  return names;
}

std::unique_ptr<Device> make_test_device(const std::string& name) {
#ifdef LILY_HAS_CUDA
  if (name == "cuda") return make_cuda_device(embedded::test_cuda_images());
#endif
  return make_emulated_device({.seed = static_cast<std::uint64_t>(name.back() - '0')});
}

}  // namespace lily
