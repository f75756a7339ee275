// The table of all entry points, for what looks them up by name: the self-test and the tests' software Metal.
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
#include "kernels/kernels.h"

std::span<const lily::Entry* const> lily::kernels::all_entries() {
  return listed();
}
