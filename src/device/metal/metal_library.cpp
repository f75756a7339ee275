#include "device/metal/metal_library.h"

#include <cstdlib>
#include <string_view>

#include "support/error.h"

namespace lily::metal {
namespace {

std::string_view text_of(const EmbeddedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()};
}

bool registers(const EmbeddedFile& file, std::string_view name) {
  for (const std::string_view word : {"ENTRY(", "ENTRY_PREFETCH("}) {
    if (text_of(file).find(std::string(word).append(name) + ",") != std::string_view::npos) return true;
  }
  return false;
}

constexpr const char* kReport = "please report this with the output of `lily selftest`; --device cpu works meanwhile";

}  // namespace

bool has_tensor_ops(MTL::Device& device) {
  const NS::OperatingSystemVersion needed{26, 2, 0};
  if (!NS::ProcessInfo::processInfo()->isOperatingSystemAtLeastVersion(needed)) return false;
  // "applegpu_g17s": the generation, and the chip's size; the small chips ('p') came a generation later.
  const std::string name = device.architecture()->name()->utf8String();
  const std::size_t digits = name.find_last_of('g') + 1;
  if (digits == 0 || digits >= name.size()) return false;
  return std::atoi(name.c_str() + digits) >= (name.back() == 'p' ? 18 : 17);
}

KernelLibrary::KernelLibrary(NS::SharedPtr<MTL::Device> device, std::span<const EmbeddedFile> sources, bool tensor_ops)
    : device_(std::move(device)), tensor_ops_(tensor_ops) {
  for (const EmbeddedFile& source : sources) files_.push_back({source, {}});
}

KernelLibrary::File& KernelLibrary::file_of(const Entry& entry) {
  for (File& file : files_)
    if (registers(file.source, entry.name)) return file;
  throw_error("Metal: kernel '{}' is not in this build", entry.name);
}

NS::SharedPtr<MTL::Library> KernelLibrary::compile(const std::string& source, MTL::LanguageVersion version,
                                                   std::string& complaint) {
  const auto options = NS::TransferPtr(MTL::CompileOptions::alloc()->init());
  options->setLanguageVersion(version);
  options->setMathMode(MTL::MathModeSafe);  // kernels ask for fast:: where they want it
  NS::Error* error = nullptr;
  auto library = NS::TransferPtr(device_->newLibrary(to_ns(source), options.get(), &error));
  if (!library) complaint = describe(error);
  return library;
}

MTL::Library& KernelLibrary::library_of(File& file) {
  if (file.library) return *file.library.get();
  const std::string source(text_of(file.source));
  std::string complaint;
  if (tensor_ops_ && source.find("LILY_TENSOR_OPS") != std::string::npos) {
    file.library = compile("#define LILY_TENSOR_OPS 1\n" + source, MTL::LanguageVersion4_0, complaint);
  }
  if (!file.library) file.library = compile(source, MTL::LanguageVersion3_1, complaint);
  if (!file.library) {
    throw Error(fmt::format("Metal: {}.metal does not compile: {}", file.source.name, complaint), kReport);
  }
  return *file.library.get();
}

MTL::ComputePipelineState& KernelLibrary::pipeline(const Entry& entry) {
  NS::SharedPtr<MTL::ComputePipelineState>& pipeline = pipelines_[&entry];
  if (pipeline) return *pipeline.get();
  const auto function = NS::TransferPtr(library_of(file_of(entry)).newFunction(to_ns(entry.name)));
  if (!function) throw Error(fmt::format("Metal: kernel '{}' is not in its library", entry.name), kReport);
  const auto descriptor = NS::TransferPtr(MTL::ComputePipelineDescriptor::alloc()->init());
  descriptor->setComputeFunction(function.get());
  descriptor->setLabel(to_ns(entry.name));
  descriptor->setMaxTotalThreadsPerThreadgroup(entry.threads);
  descriptor->setThreadGroupSizeIsMultipleOfThreadExecutionWidth(true);
  NS::Error* error = nullptr;
  pipeline =
      NS::TransferPtr(device_->newComputePipelineState(descriptor.get(), MTL::PipelineOptionNone, nullptr, &error));
  if (!pipeline) throw Error(fmt::format("Metal: kernel '{}': {}", entry.name, describe(error)), kReport);
  if (pipeline->threadExecutionWidth() != 32 || pipeline->maxTotalThreadsPerThreadgroup() < entry.threads) {
    throw Error(
        fmt::format("Metal: kernel '{}' needs {} threads in simdgroups of 32, this GPU gives {} in simdgroups of {}",
                    entry.name, entry.threads, pipeline->maxTotalThreadsPerThreadgroup(),
                    pipeline->threadExecutionWidth()),
        kReport);
  }
  return *pipeline.get();
}

}  // namespace lily::metal
