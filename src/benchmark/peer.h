// Another engine's benchmark as a command, so that both can be measured in alternating rounds on the same machine.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lily {

/// Tokens per second; none: the output did not tell.
struct PeerSpeed {
  std::optional<double> prefill;
  std::optional<double> decode;
};

/// Finds the figures in what another engine printed: llama-bench's JSON (`-o json`; entries with n_gen 0 are prefill,
/// the others decode) or MLX-LM's lines "Prompt: 512 tokens, 4738.1 tokens-per-sec" and "Generation: ...".
PeerSpeed parse_peer_output(std::string_view output);

/// Runs `command` by the shell, with "{length}" replaced by the prompt's length and "{tokens}" by the reply's. It has
/// no input and a process group of its own, which ends with it: after `limit` (0: none), and with a signal that ends
/// this process. Throws Error when it fails, is ended or prints no figure.
PeerSpeed run_peer(const std::string& command, std::int64_t length, std::int64_t tokens, std::chrono::seconds limit);

}  // namespace lily
