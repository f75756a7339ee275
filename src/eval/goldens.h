// Stored reference numbers of a model: what MLX-LM, in float32 and in its own arithmetic, says after each token of some
// texts, and what it continues a few prompts with. The file is a safetensors file; its tensors are described where it
// is made, in tools/goldens/make_goldens.py.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "model/config.h"

namespace lily {

/// One run's answer at every position: [positions] each, top_logits [positions, top_k].
struct GoldenRun {
  std::vector<float> top_logits;     // of the ids in Goldens::top_ids
  std::vector<float> target_logits;  // of the token that follows in the text
  std::vector<float> logsumexp;      // over all logits
};

struct GoldenContinuation {
  std::vector<std::int32_t> prompt;
  std::vector<std::int32_t> tokens;  // the most likely one each time
  std::vector<float> margins;        // [tokens.size()], how far its logit is above the second
};

struct Goldens {
  std::vector<std::vector<std::int32_t>> sequences;  // two or more tokens each; n tokens are n - 1 positions
  std::int64_t positions = 0;                        // of all sequences, in their order
  std::int64_t top_k = 0;
  std::vector<std::int32_t> top_ids;  // [positions, top_k], the float32 run's most likely tokens, best first
  GoldenRun reference;                // float32
  GoldenRun native;                   // MLX-LM as it comes
  std::vector<std::int32_t> native_top_id;
  std::vector<GoldenContinuation> continuations;

  std::span<const std::int32_t> top_ids_at(std::int64_t position) const {
    return std::span(top_ids).subspan(static_cast<std::size_t>(position * top_k), static_cast<std::size_t>(top_k));
  }
};

/// Throws Error when the file is damaged, incomplete, or made for a model of other sizes than `config`.
Goldens read_goldens(const std::filesystem::path& file, const ModelConfig& config);

}  // namespace lily
