#include <fmt/format.h>

#include "benchmark.h"
#include "support/error.h"

int main(int argc, char** argv) {
  try {
    return lily::run_benchmark(argc, argv);
  } catch (const lily::Error& error) {
    fmt::print(stderr, "{}: {}\n", error.what(), error.hint());
    return 1;
  }
}
