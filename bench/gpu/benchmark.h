// What a benchmark of this folder is: its main() is in main.cpp.
#pragma once

namespace lily {

/// Gives the process's exit code; an Error it throws is printed.
int run_benchmark(int argc, char** argv);

}  // namespace lily
