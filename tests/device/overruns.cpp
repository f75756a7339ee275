// What AddressSanitizer sees in the emulator: `overruns right` runs clean, the others have to be stopped.
#include <cstring>
#include <vector>

#include "device/emulated/emulated_device.h"
#include "device/test_kernels.h"

using namespace lily;

int main(int, char** arguments) {
  const auto device = make_emulated_device();
  const auto y = device->allocate(64 * sizeof(float));
  const auto run = [&](const auto& entry) {
    device->dispatch(entry, {}, y->view<float>());
    device->wait(device->submit());
  };
  if (std::strcmp(arguments[1], "right") == 0) run(kernels::broken_missing_barrier);
  if (std::strcmp(arguments[1], "buffer") == 0) run(kernels::broken_writes_past_buffer);
  if (std::strcmp(arguments[1], "shared") == 0) run(kernels::broken_writes_past_shared);
  return 0;
}
