// The table of the test kernels' entry points, for the software Metal.
#include <vector>

#include "device/entry.h"

namespace {

std::vector<const lily::Entry*>& listed() {
  static std::vector<const lily::Entry*> entries;
  return entries;
}
bool list_entry(const lily::Entry* entry) {
  listed().push_back(entry);
  return true;
}

}  // namespace

#define LILY_LIST_ENTRIES
#include "device/test_kernels.h"

std::span<const lily::Entry* const> lily::kernels::test_entries() {
  return listed();
}
