// What ThreadSanitizer sees of the Metal device on the software Metal. `metal_races right N` runs clean for seed N in a
// right build; the build also makes hosts that leave out barriers or fences, and these it has to report.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>

#include "device/metal/metal_device.h"
#include "device/soft_metal/soft_metal.h"
#include "device/test_device.h"
#include "device/test_kernels.h"

using namespace lily;

int main(int, char** arguments) {
  const std::string how = arguments[1];
  soft_metal::machine().seed = std::strtoull(arguments[2], nullptr, 10);
  const auto device = make_test_device("metal");
  const auto filled = [&](float value) {
    auto buffer = device->allocate(64 * sizeof(float), Memory::kShared);
    std::ranges::fill(buffer->host_as<float>(), value);
    return buffer;
  };
  const auto x = filled(1), y = filled(0), z = filled(0);
  const auto scale_add = [&](const Buffer& in, const Buffer& out) {
    device->dispatch(kernels::scale_add_64, {}, in.view<float>(), out.view<float>(), Scaling{1, 64});
  };
  scale_add(*x, *y);
  scale_add(*y, *z);
  const auto step = device->record();
  for (int i = 0; i < 3; ++i) device->submit(*step);
  scale_add(*z, *y);
  const auto last = device->submit();
  const auto sum = [&] {
    const auto values = y->host_as<float>();
    return std::accumulate(values.begin(), values.end(), 0.0);
  };
  if (how == "early_read") std::printf("%f\n", sum());
  device->wait(last);
  std::printf("%f\n", sum());
  return 0;
}
