#include "benchmark/peer.h"

#include <sys/wait.h>

#include <cmath>
#include <regex>

#include "benchmark/shell.h"
#include "support/error.h"

namespace lily {
namespace {

std::string with_values(std::string command, std::int64_t length, std::int64_t tokens) {
  const auto replace = [&](std::string_view name, std::int64_t value) {
    for (std::size_t at; (at = command.find(name)) != std::string::npos;) {
      command.replace(at, name.size(), std::to_string(value));
    }
  };
  replace("{length}", length);
  replace("{tokens}", tokens);
  return command;
}

/// The command's standard output; its standard error stays ours.
std::string output_of(const std::string& command, std::chrono::seconds limit) {
  const ShellResult result = run_shell(command, limit);
  if (result.ended_late) {
    throw Error(fmt::format("bench: '{}' was still running after {} s, so it was ended", command, limit.count()),
                "run it by itself; --against-limit gives it more time");
  }
  if (const int status = result.status; status != 0) {
    throw Error(
        fmt::format("bench: '{}' {} {}", command, WIFSIGNALED(status) ? "was ended by signal" : "ended with status",
                    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status)),
        "run it by itself: it must print its speed and end with status 0");
  }
  return result.output;
}

}  // namespace

PeerSpeed parse_peer_output(std::string_view output) {
  PeerSpeed speed;
  const std::string text(output);
  // Repetitions have ends: the library's matching goes a step deeper with each.
  // An entry of llama-bench has n_prompt, n_gen and then avg_ts.
  static const std::regex number(R"re("(n_gen|avg_ts)"\s{0,9}:\s{0,9}"?([0-9.eE+-]{1,40}))re");
  double generated = 0;
  for (std::sregex_iterator match(text.begin(), text.end(), number), end; match != end; ++match) {
    const double value = std::strtod((*match)[2].str().c_str(), nullptr);
    if ((*match)[1] == "n_gen") {
      generated = value;
    } else {
      (generated > 0 ? speed.decode : speed.prefill) = value;
    }
  }
  static const std::regex line(R"((Prompt|Generation):\s{0,9}[0-9]{1,20} tokens,\s{0,9}([0-9.]{1,40}) tokens-per-sec)");
  for (std::sregex_iterator match(text.begin(), text.end(), line), end; match != end; ++match) {
    const double value = std::strtod((*match)[2].str().c_str(), nullptr);
    ((*match)[1] == "Prompt" ? speed.prefill : speed.decode) = value;
  }
  return speed;
}

PeerSpeed run_peer(const std::string& command, std::int64_t length, std::int64_t tokens, std::chrono::seconds limit) {
  const std::string full = with_values(command, length, tokens);
  const std::string output = output_of(full, limit);
  const PeerSpeed speed = parse_peer_output(output);
  for (const auto& value : {speed.prefill, speed.decode}) {
    if (value && !(std::isfinite(*value) && *value > 0)) throw_error("bench: '{}' printed a speed of {}", full, *value);
  }
  if (!speed.prefill && !speed.decode) {
    throw Error(fmt::format("bench: '{}' printed no speed", full),
                "known are llama-bench with -o json, and mlx_lm's generate");
  }
  return speed;
}

}  // namespace lily
