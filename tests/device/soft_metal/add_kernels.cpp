// Gives the software Metal all of lily's kernels when the program starts.
#include "soft_metal.h"

namespace {
const bool added = [] {
  soft_metal::add_entries(lily::kernels::all_entries);
  return true;
}();
}  // namespace
