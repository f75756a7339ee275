// NVIDIA's driver, found at run time: lily links to no CUDA library and starts without one.
#pragma once

#include <cuda.h>

#include <memory>
#include <string_view>
#include <type_traits>

namespace lily::cuda {

#define LILY_CUDA_FUNCTIONS(X)   \
  X(cuInit)                      \
  X(cuDriverGetVersion)          \
  X(cuGetErrorName)              \
  X(cuGetErrorString)            \
  X(cuDeviceGetCount)            \
  X(cuDeviceGet)                 \
  X(cuDeviceGetName)             \
  X(cuDeviceGetAttribute)        \
  X(cuDevicePrimaryCtxRetain)    \
  X(cuDevicePrimaryCtxRelease)   \
  X(cuCtxSetCurrent)             \
  X(cuMemGetInfo)                \
  X(cuMemAlloc)                  \
  X(cuMemFree)                   \
  X(cuMemHostAlloc)              \
  X(cuMemFreeHost)               \
  X(cuMemcpyHtoD)                \
  X(cuMemcpyDtoH)                \
  X(cuModuleLoadData)            \
  X(cuModuleUnload)              \
  X(cuModuleGetFunctionCount)    \
  X(cuModuleEnumerateFunctions)  \
  X(cuFuncGetName)               \
  X(cuFuncGetAttribute)          \
  X(cuFuncSetAttribute)          \
  X(cuFuncLoad)                  \
  X(cuLaunchKernelEx)            \
  X(cuStreamCreate)              \
  X(cuStreamDestroy)             \
  X(cuStreamSynchronize)         \
  X(cuStreamBeginCapture)        \
  X(cuStreamEndCapture)          \
  X(cuEventCreate)               \
  X(cuEventDestroy)              \
  X(cuEventRecord)               \
  X(cuEventQuery)                \
  X(cuEventSynchronize)          \
  X(cuGraphInstantiateWithFlags) \
  X(cuGraphLaunch)               \
  X(cuGraphDestroy)              \
  X(cuGraphExecDestroy)

struct Driver {
#define LILY_CUDA_POINTER(function) std::add_pointer_t<decltype(::function)> function = nullptr;
  LILY_CUDA_FUNCTIONS(LILY_CUDA_POINTER)
#undef LILY_CUDA_POINTER
};

/// Null when there is no usable driver.
const Driver* find_driver();

/// The driver; throws lily::Error when there is none.
const Driver& driver();

/// Throws lily::Error with the driver's own words.
void check(CUresult result, std::string_view what);

/// Owns one of the driver's objects; its deleter is a function of the driver.
template <typename Handle>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, CUresult (*)(Handle)>;

}  // namespace lily::cuda
