// Kernels compiled at run time, from the source that the build embedded: a file is compiled when its first entry point
// is asked for. With tensor operations a file that has a body for them (LILY_TENSOR_OPS) is compiled as Metal 4; if
// Apple's compiler refuses that, it is compiled as Metal 3.1 like all others.
#pragma once

#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/embedded.h"
#include "device/entry.h"
#include "device/metal/metal_cpp.h"

namespace lily::metal {

/// Does this Mac run Metal 4's tensor operations: macOS 26.2, and a GPU of the M5's generation or later?
bool has_tensor_ops(MTL::Device& device);

class KernelLibrary {
 public:
  KernelLibrary(NS::SharedPtr<MTL::Device> device, std::span<const EmbeddedFile> sources, bool tensor_ops);

  /// Throws lily::Error with the compiler's words, or when the GPU cannot run the entry's threads.
  MTL::ComputePipelineState& pipeline(const Entry& entry);

 private:
  struct File {
    EmbeddedFile source;
    NS::SharedPtr<MTL::Library> library;
  };
  File& file_of(const Entry& entry);
  MTL::Library& library_of(File& file);
  NS::SharedPtr<MTL::Library> compile(const std::string& source, MTL::LanguageVersion version, std::string& complaint);

  NS::SharedPtr<MTL::Device> device_;
  std::vector<File> files_;
  bool tensor_ops_;
  std::unordered_map<const Entry*, NS::SharedPtr<MTL::ComputePipelineState>> pipelines_;
};

}  // namespace lily::metal
