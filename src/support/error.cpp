#include "support/error.h"

#include <cstdio>
#include <cstdlib>

namespace lily {

void invariant_broken(const char* condition, const char* file, int line) noexcept {
  std::fprintf(stderr, "lily: internal error, please report it: %s:%d: %s does not hold\n", file, line, condition);
  std::abort();
}

}  // namespace lily
