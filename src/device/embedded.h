// Files that the build put into the binary (lily_embed in cmake/gpu.cmake). A zero byte follows each.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace lily {

struct EmbeddedFile {
  std::string_view name;  // a kernel's without its ending
  std::span<const std::byte> bytes;
};

namespace embedded {
std::span<const EmbeddedFile> cuda_images();    // fatbins
std::span<const EmbeddedFile> metal_sources();  // text, each complete in itself
std::span<const EmbeddedFile> web_files();      // the web page, in programs with lily::server
}  // namespace embedded

}  // namespace lily
