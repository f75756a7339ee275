#include "device/cuda/driver.h"

#include <dlfcn.h>

#include "support/error.h"

namespace lily::cuda {
namespace {

constexpr const char* kHint = "install NVIDIA's driver (nvidia-smi must list a GPU), or use --device cpu";

/// Loads every function, under the versioned names that cuda.h gives them.
bool load(Driver& driver) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);  // stays open until the process ends
  if (library == nullptr) return false;
  bool complete = true;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    complete = complete && function != nullptr;
  };
#define LILY_CUDA_STRING(name) #name
#define LILY_CUDA_FIND(function) find(driver.function, LILY_CUDA_STRING(function));
  LILY_CUDA_FUNCTIONS(LILY_CUDA_FIND)
#undef LILY_CUDA_FIND
#undef LILY_CUDA_STRING
  return complete && driver.cuInit(0) == CUDA_SUCCESS;
}

}  // namespace

const Driver* find_driver() {
  static const std::unique_ptr<const Driver> found = []() -> std::unique_ptr<const Driver> {
    auto driver = std::make_unique<Driver>();
    return load(*driver) ? std::move(driver) : nullptr;
  }();
  return found.get();
}

const Driver& driver() {
  const Driver* found = find_driver();
  if (found == nullptr) throw Error("CUDA: no driver (libcuda.so.1) that starts on this machine", kHint);
  return *found;
}

void check(CUresult result, std::string_view what) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "unknown error";
  const char* text = "";
  driver().cuGetErrorName(result, &name);
  driver().cuGetErrorString(result, &text);
  std::string hint;
  if (result == CUDA_ERROR_OUT_OF_MEMORY) hint = "use a shorter context, or free the GPU's memory (nvidia-smi)";
  if (result == CUDA_ERROR_NO_BINARY_FOR_GPU || result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION) {
    hint = "update NVIDIA's driver, or build with -DLILY_CUDA_ARCHITECTURES for this GPU";
  }
  throw Error(fmt::format("CUDA: {}: {} ({})", what, name, text), hint);
}

}  // namespace lily::cuda
