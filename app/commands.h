// One function per subcommand, each in its own file: adds its options to the command line and the callback that runs
// it.
#pragma once

#include <CLI/CLI.hpp>

namespace lily {

void add_bench(CLI::App& app);
void add_chat(CLI::App& app);
void add_convert(CLI::App& app);
void add_eval(CLI::App& app);
void add_info(CLI::App& app);
void add_run(CLI::App& app);
void add_selftest(CLI::App& app);
void add_serve(CLI::App& app);
void add_synth(CLI::App& app);
void add_tokenize(CLI::App& app);

}  // namespace lily
