// What a reply took, in OpenAI's words, and lily's own `timings`: how fast, how much was reused, and why not more.
#pragma once

#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "text/tokenizer.h"

namespace lily {

nlohmann::ordered_json openai_usage(const Finished& finished, std::int64_t reasoning_tokens);

/// Milliseconds and tokens per second; `cache` says where the reused prefix came from and, at the first token that
/// differs from what is known, what stands there and what the prompt has.
nlohmann::ordered_json timings(const Finished& finished, const Tokenizer& tokenizer);

/// {"token", "logprob", "bytes", "top_logprobs"} as in OpenAI's chat completions.
nlohmann::ordered_json token_logprob(const Sampled& sampled, const Tokenizer& tokenizer);

/// The token's bytes as text, invalid UTF-8 replaced.
std::string token_text(std::int32_t token, const Tokenizer& tokenizer);

}  // namespace lily
