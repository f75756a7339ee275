// A Device on an NVIDIA GPU, through the driver's API.
//
// Launches go to one stream and run in order, so the barriers that the launches' ranges ask for are there anyway. Where
// the kernels are built for sm_90 and later each launch may start while the one before it ends (programmatic dependent
// launch): it waits in wait_for_inputs(), see lily.h. A Step is a graph.
#pragma once

#include <memory>

#include "device/device.h"
#include "device/embedded.h"

namespace lily {

/// Is there a driver, and a GPU that this build's kernels run on (LILY_CUDA_ARCHITECTURES; 8.0 at least, for bf16)?
bool cuda_available();

/// The first GPU, with lily's kernels or those of `images` (fatbins). Throws lily::Error when there is none.
std::unique_ptr<Device> make_cuda_device();
std::unique_ptr<Device> make_cuda_device(std::span<const EmbeddedFile> images);

}  // namespace lily
