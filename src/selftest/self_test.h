// Every GPU kernel against the CPU's answer, on the machine at hand: what no test elsewhere can promise of this GPU,
// its driver and its compiler.
//
// Small made-up models run through the GPU backend, prompt and decode, on a CheckingDevice: sizes for the general
// kernels, for the wide heads, and the real model's widths (with few layers and experts) for the specialised kernels.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/checking_device.h"

namespace lily {

struct SelfTestReport {
  DeviceInfo device;
  std::vector<KernelVerdict> kernels;  // by name
  std::vector<std::string> unused;     // entry points that no model here needs on this device
  double seconds = 0;

  static constexpr double kTolerance = 0.01;  // of the output's largest value: two roundings to bf16
  bool passed() const;
};

/// `progress` is told the name of each part as it begins. Throws lily::Error when the device itself fails.
SelfTestReport run_self_test(std::unique_ptr<Device> device,
                             const std::function<void(std::string_view)>& progress = {});

/// As text for a bug report.
std::string describe(const SelfTestReport& report);

}  // namespace lily
