// The entry points of tests/device/kernels, and these kernels' images for the GPUs.
#pragma once

#include "device/embedded.h"
#include "device/kernels/broken.metal"
#include "device/kernels/chain.metal"
#include "device/kernels/lanes.metal"
#include "device/kernels/product.metal"
#include "kernels/tile_probe.metal"

// Last: MSL's words are macros until here.
#include "kernels/shim/host/undefine_msl.h"

namespace lily::kernels {
std::span<const Entry* const> test_entries();
}  // namespace lily::kernels

namespace lily::embedded {
std::span<const EmbeddedFile> test_cuda_images();
std::span<const EmbeddedFile> test_metal_sources();
}  // namespace lily::embedded
