// lily chat: a conversation on a terminal, or line by line through a pipe.
#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "chat/chat_input.h"
#include "chat/chat_program.h"
#include "chat/chat_view.h"
#include "commands.h"
#include "engine/loaded_model.h"
#include "options.h"
#include "progress_line.h"
#include "support/error.h"
#include "terminal/signals.h"
#include "terminal/terminal.h"

namespace lily {
namespace {

struct Options {
  LoadOptions load;
  ChatProgramOptions program;
};

void chat(const Options& options) {
  LoadOptions load = options.load;
  load.context = options.program.context;
  ProgressLine loading("loading");
  load.progress = [&](std::int64_t done, std::int64_t total) { loading.show_count(done, total, "layers"); };
  check_model(load);
  LoadedModel model(load);
  loading.clear();

  SignalFlags signals(Terminal::is_interactive());
  const bool style = Terminal::has_style();
  ChatView view(isatty(STDOUT_FILENO) == 1, style);
  const std::unique_ptr<ChatInput> input = make_chat_input(signals, style);
  if (Terminal::is_interactive()) {
    view.note(fmt::format("lily {}: {} on {}, {} tokens of context; /help lists the commands", LILY_VERSION, load.model,
                          model.device(), load.context));
  }
  ChatProgram program(model, options.program, *input, view, signals);
  if (!program.run() && !Terminal::is_interactive()) throw CLI::RuntimeError(1);
}

}  // namespace

void add_chat(CLI::App& app) {
  auto options = std::make_shared<Options>();
  ChatProgramOptions& program = options->program;
  CLI::App* command = app.add_subcommand("chat", "a conversation on the terminal; through a pipe, one message a line");
  add_load_options(*command, options->load);
  program.sampling.add_to(*command);
  command->add_flag("--think,!--nothink", program.think, "let the model think before it answers (default), or not");
  command->add_flag("--preserve-thinking", program.preserve_thinking, "keep earlier thoughts in the prompt");
  command->add_option("-s,--system", program.system, "system message");
  command->add_option("--tools", program.tools, "off, demo, or a JSON file with an array of tools")
      ->capture_default_str();
  command->add_option("--load", program.load, "go on with a conversation that /save wrote")->check(CLI::ExistingFile);
  command->add_option("-n,--max-tokens", program.max_tokens, "longest reply; 0: what the context can take")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40));
  command->add_option("-c,--ctx", program.context, "tokens of prompt and reply together")
      ->check(CLI::Range(std::int64_t{16}, std::int64_t{1} << 20))
      ->capture_default_str();
  command->callback([options] { chat(*options); });
}

}  // namespace lily
