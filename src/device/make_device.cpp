// Which devices this binary was built with, and which of them this machine has.
#include "device/device.h"
#include "device/emulated/emulated_device.h"
#ifdef LILY_HAS_METAL
#include "device/metal/metal_device.h"
#endif
#ifdef LILY_HAS_CUDA
#include "device/cuda/cuda_device.h"
#endif

namespace lily {
namespace {

std::unique_ptr<Device> make_metal() {
#ifdef LILY_HAS_METAL
  return make_metal_device();
#else
  throw Error("this lily was built without Metal", "Metal needs a Mac; use --device auto");
#endif
}

std::unique_ptr<Device> make_cuda() {
#ifdef LILY_HAS_CUDA
  return make_cuda_device();
#else
  throw Error("this lily was built without CUDA", "build with nvcc on the PATH (-DLILY_CUDA=ON), or use --device auto");
#endif
}

std::unique_ptr<Device> first_found() {
#ifdef LILY_HAS_METAL
  if (metal_available()) return make_metal();
#endif
#ifdef LILY_HAS_CUDA
  if (cuda_available()) return make_cuda();
#endif
  return nullptr;
}

}  // namespace

std::unique_ptr<Device> make_device(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kAuto:
      return first_found();
    case DeviceKind::kMetal:
      return make_metal();
    case DeviceKind::kCuda:
      return make_cuda();
    case DeviceKind::kEmulated:
      return make_emulated_device();
    case DeviceKind::kCpu:
      break;
  }
  return nullptr;
}

}  // namespace lily
