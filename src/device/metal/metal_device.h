// A Device on Apple's GPUs, through metal-cpp and Metal's classic interface: M1 and later, macOS 15.
//
// A submission is one command buffer with one encoder of concurrent dispatches; memory barriers stand where Device
// wants them, and a fence orders encoders. Resources are untracked: nothing but these orders them. All memory is in one
// residency set. map() uses the host's pages in place.
#pragma once

#include <memory>
#include <span>

#include "device/device.h"
#include "device/embedded.h"

namespace lily {

struct MetalOptions {
  bool tensor_ops = true;  // where the Mac has them, and they give right answers
  std::span<const EmbeddedFile> sources = embedded::metal_sources();
};

/// Is there a GPU that Metal knows?
bool metal_available();

/// Throws lily::Error when there is none, or it is not one of Apple's own.
std::unique_ptr<Device> make_metal_device(const MetalOptions& options = {});

}  // namespace lily
