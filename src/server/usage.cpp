#include "server/usage.h"

#include <algorithm>

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

const char* name_of(CacheUse::Source source) {
  switch (source) {
    case CacheUse::Source::kNone:
      return "none";
    case CacheUse::Source::kLive:
      return "live";
    case CacheUse::Source::kMemory:
      return "memory";
    case CacheUse::Source::kDisk:
      return "disk";
  }
  return "none";
}

double rate(std::int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
}

Json cache_json(const CacheUse& use, const Tokenizer& tokenizer) {
  Json cache = {
      {"source", name_of(use.source)}, {"cached_tokens", use.cached_tokens}, {"common_tokens", use.common_tokens}};
  if (use.prompt_token && use.known_token) {
    cache["first_difference"] = {{"position", use.common_tokens},
                                 {"cached", token_text(*use.known_token, tokenizer)},
                                 {"prompt", token_text(*use.prompt_token, tokenizer)}};
  }
  return cache;
}

}  // namespace

Json openai_usage(const Finished& finished, std::int64_t reasoning_tokens) {
  return {{"prompt_tokens", finished.prompt_tokens},
          {"completion_tokens", finished.generated_tokens},
          {"total_tokens", finished.prompt_tokens + finished.generated_tokens},
          {"prompt_tokens_details", {{"cached_tokens", finished.cache.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", reasoning_tokens}}}};
}

Json timings(const Finished& finished, const Tokenizer& tokenizer) {
  const std::int64_t computed = finished.prompt_tokens - finished.cache.cached_tokens;
  return {{"queue_ms", finished.queue_seconds * 1e3},
          {"cache_n", finished.cache.cached_tokens},
          {"prompt_n", computed},
          {"prompt_ms", finished.prefill_seconds * 1e3},
          {"prompt_per_second", rate(computed, finished.prefill_seconds)},
          {"predicted_n", finished.generated_tokens},
          {"predicted_ms", finished.decode_seconds * 1e3},
          {"predicted_per_second", rate(finished.generated_tokens, finished.decode_seconds)},
          {"cache", cache_json(finished.cache, tokenizer)}};
}

std::string token_text(std::int32_t token, const Tokenizer& tokenizer) {
  StreamDecoder decoder(tokenizer);
  const std::string text = decoder.push(token);
  return text + decoder.finish();
}

Json token_logprob(const Sampled& sampled, const Tokenizer& tokenizer) {
  // JSON has no infinity; OpenAI says -9999 for what is as good as impossible.
  const auto finite = [](float logprob) { return std::max(logprob, -9999.0F); };
  const auto entry = [&](std::int32_t token, float logprob) {
    Json bytes = Json::array();
    for (const char byte : tokenizer.bytes(token)) bytes.push_back(static_cast<unsigned char>(byte));
    return Json{{"token", token_text(token, tokenizer)}, {"logprob", finite(logprob)}, {"bytes", std::move(bytes)}};
  };
  Json result = entry(sampled.token, sampled.logprob);
  result["top_logprobs"] = Json::array();
  for (const TokenLogprob& other : sampled.top) result["top_logprobs"].push_back(entry(other.token, other.logprob));
  return result;
}

}  // namespace lily
