// lily: one binary, one subcommand per task.
#include <CLI/CLI.hpp>
#include <csignal>
#include <exception>

#include "commands.h"
#include "standard_io.h"
#include "support/error.h"

namespace {

/// The parser would only say that a command is missing.
void check_command(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_name() == name) return;
  }
  if (name == "serve") throw lily::Error("this lily was built without the server", "`./lily serve` builds it");
  throw lily::Error(fmt::format("there is no command '{}'", name), "lily --help lists them");
}

/// What --help and --version print counts as output, too.
int finish(int status) {
  try {
    lily::finish_standard_output();
    return status;
  } catch (const lily::Error& error) {
    lily::complain(error.what(), error.hint());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  lily::keep_standard_streams();
  std::signal(SIGXFSZ, SIG_IGN);  // a limit of file sizes is a write that fails
  CLI::App app{"lily: Qwen3.6-35B-A3B on this machine"};
  app.name("lily");
  app.set_version_flag("--version", "lily " LILY_VERSION);
  app.require_subcommand(1);
  lily::add_bench(app);
  lily::add_chat(app);
  lily::add_convert(app);
  lily::add_eval(app);
  lily::add_info(app);
  lily::add_run(app);
  lily::add_selftest(app);
#ifdef LILY_SERVE
  lily::add_serve(app);
#endif
  lily::add_synth(app);
  lily::add_tokenize(app);
  try {
    if (argc > 1 && argv[1][0] != '-') check_command(app, argv[1]);
    app.parse(argc, argv);
    return finish(0);
  } catch (const CLI::RuntimeError& error) {  // a command has told what went wrong
    return finish(error.get_exit_code());
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return finish(app.exit(error));  // --help, --version
    const auto used = app.get_subcommands();
    lily::complain(error.what(), fmt::format("lily {}--help tells what can be given",
                                             used.empty() ? "" : used.front()->get_name() + " "));
    return 2;
  } catch (const lily::Error& error) {
    lily::complain(error.what(), error.hint());
  } catch (const std::exception& error) {
    lily::complain(error.what());
  }
  return 1;
}
