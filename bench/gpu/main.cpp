#include <fmt/format.h>

#include "benchmark.h"
#include "support/error.h"

namespace lily {

std::unique_ptr<Device> require_gpu(std::string_view program, std::string_view kind) {
  auto device = make_device(parse_device_kind(kind));
  if (device == nullptr) throw Error(fmt::format("{}: no GPU", program), "give cuda, metal or emulated");
  return device;
}

}  // namespace lily

int main(int argc, char** argv) {
  try {
    return lily::run_benchmark(argc, argv);
  } catch (const lily::Error& error) {
    fmt::print(stderr, "{}{}{}\n", error.what(), error.hint().empty() ? "" : ": ", error.hint());
    return 1;
  }
}
