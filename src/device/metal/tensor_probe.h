// Does Metal 4's matrix multiplication give right answers here? Its register layout is not documented, so a device that
// uses it proves it first, with one small product.
#pragma once

#include "device/device.h"

namespace lily::metal {

/// False when the product is wrong, or does not run.
bool tensor_ops_work(Device& device);

}  // namespace lily::metal
