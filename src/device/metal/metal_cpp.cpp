// The one place where metal-cpp's functions are defined.
#define NS_PRIVATE_IMPLEMENTATION
#define MTL_PRIVATE_IMPLEMENTATION
#include "device/metal/metal_cpp.h"
