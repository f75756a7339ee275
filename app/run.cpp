// lily run: one prompt in, the reply out. Only the reply goes to standard output, so that it pipes well.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "commands.h"
#include "engine/generation.h"
#include "engine/loaded_model.h"
#include "interrupt.h"
#include "options.h"
#include "session/session.h"
#include "standard_io.h"
#include "support/error.h"
#include "text/chat_format.h"

namespace lily {
namespace {

struct RunOptions {
  LoadOptions load;
  SamplingOptions sampling;
  std::string prompt;
  std::string system;
  std::vector<std::string> stop;
  std::int64_t max_tokens = 0;
  std::int64_t context = 32768;
  bool think = false;
  bool raw = false;
  bool stats = false;
};

/// The prompt argument, standard input, or both: the argument first, as in `lily run "Summarise:" < text`.
std::string whole_prompt(const RunOptions& options) {
  std::string prompt = options.prompt;
  if (prompt.empty() || !isatty(STDIN_FILENO)) {
    const std::string input = read_standard_input();
    if (!prompt.empty() && !input.empty()) prompt += "\n\n";
    prompt += input;
  }
  if (prompt.find_first_not_of(" \t\r\n") == std::string::npos) {
    throw Error("run: there is no prompt", "give it as an argument or on standard input");
  }
  return prompt;
}

std::vector<std::int32_t> prompt_tokens(const Tokenizer& tokenizer, const RunOptions& options) {
  const std::string prompt = whole_prompt(options);
  if (options.raw) return tokenizer.encode_with_control(prompt);
  std::vector<ChatMessage> messages;
  if (!options.system.empty()) messages.push_back(ChatMessage::of(Role::kSystem, options.system));
  messages.push_back(ChatMessage::of(Role::kUser, prompt));
  return tokenizer.encode(render_chat(messages, {}, {.enable_thinking = options.think}).pieces);
}

/// Writes the reply as it comes; the thinking is not part of it.
class ReplyWriter {
 public:
  explicit ReplyWriter(bool thinking) : thinking_(thinking) {}

  void write(const GeneratedToken& token) {
    if (!thinking_) put(token.text);
    if (token.control == "</think>") {
      thinking_ = false;
      at_start_ = true;
    } else if (!thinking_) {
      put(token.control);
    }
  }
  bool thinking() const { return thinking_; }

 private:
  void put(std::string_view text) {
    if (at_start_) text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
    if (text.empty()) return;
    at_start_ = false;
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
      throw_error("cannot write the reply to standard output");
    }
  }

  bool thinking_;
  bool at_start_ = false;
};

void run(const RunOptions& options) {
  LoadOptions load = options.load;
  load.context = options.context;
  check_model(load);
  LoadedModel loaded(load);
  const std::vector<std::int32_t> prompt = prompt_tokens(loaded.tokenizer(), options);
  Session session(loaded.model(), loaded.ops(), {.capacity = options.context});
  const Interrupt interrupt;
  std::signal(SIGPIPE, SIG_IGN);
  session.sync(prompt, {.progress = [&](std::int64_t, std::int64_t) { return !interrupt.pending(); }});
  interrupt.check();
  const bool thinking = options.think && !options.raw;
  Generation generation(loaded.tokenizer(), loaded.config().eos_token_ids,
                        {.sampling = options.sampling.params(options.think),
                         .max_tokens = options.max_tokens,
                         .stop = options.stop,
                         .in_thinking = thinking},
                        room_after(static_cast<std::int64_t>(prompt.size()), session.capacity()));
  ReplyWriter writer(thinking);
  const FinishReason reason = generate(session, generation, [&](const GeneratedToken& token) {
    writer.write(token);
    return !interrupt.pending();
  });
  std::fputc('\n', stdout);
  std::fflush(stdout);
  if (reason == FinishReason::kCancelled) interrupt.check();
  if (reason == FinishReason::kLength && (options.max_tokens == 0 || writer.thinking())) {
    complain(fmt::format("the reply was cut off after {} tokens{}", generation.count(),
                         writer.thinking() ? ", while the model was thinking" : ""),
             options.max_tokens == 0 ? "--ctx gives it more room" : "--max-tokens gives it more room");
  }
  if (options.stats) complain(fmt::format("{} prompt tokens, {} generated", prompt.size(), generation.count()));
}

}  // namespace

void add_run(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "one prompt in (argument, standard input or both), the reply out");
  add_load_options(*command, options->load);
  options->sampling.add_to(*command);
  command->add_option("prompt", options->prompt, "the prompt; standard input follows it when that is not a terminal");
  command->add_option("-s,--system", options->system, "system message");
  command->add_option("--stop", options->stop, "text that ends the reply; may be given several times")
      ->allow_extra_args(false);
  command->add_option("-n,--max-tokens", options->max_tokens, "longest reply; 0: what the context can take")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40));
  command->add_option("-c,--ctx", options->context, "tokens of prompt and reply together")
      ->check(CLI::Range(std::int64_t{16}, std::int64_t{1} << 20))
      ->capture_default_str();
  command->add_flag("--think", options->think, "let the model think first; only the answer is written");
  command->add_flag("--raw", options->raw, "no chat format: continue the text; spellings of control tokens count");
  command->add_flag("--stats", options->stats, "token counts on standard error");
  command->callback([options] { run(*options); });
}

}  // namespace lily
