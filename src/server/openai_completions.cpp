#include "server/openai_completions.h"

#include <algorithm>

#include "server/api_error.h"
#include "server/generation_fields.h"
#include "server/json_fields.h"
#include "server/usage.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostPrompts = 128;

std::vector<std::int32_t> token_ids(const JsonFields& body, const Json& ids) {
  std::vector<std::int32_t> tokens;
  for (const Json& id : ids) {
    if (!id.is_number_integer() || id < 0 || id > 0x7fffffff)
      body.fail("prompt", "holds " + id.dump() + ", expected token ids");
    tokens.push_back(id.get<std::int32_t>());
  }
  return tokens;
}

std::vector<std::vector<std::int32_t>> read_prompts(const JsonFields& body, const Tokenizer& tokenizer) {
  const Json* prompt = body.find("prompt");
  if (prompt == nullptr) body.fail("prompt", "is missing");
  const auto encode = [&](const Json& one) {
    if (one.is_string()) return tokenizer.encode_with_control(one.get<std::string>());
    if (!one.is_array()) body.fail("prompt", "expected a text, an array of token ids, or an array of either");
    return token_ids(body, one);
  };
  const bool many = prompt->is_array() && !prompt->empty() && !prompt->front().is_number();
  std::vector<std::vector<std::int32_t>> prompts;
  if (many) {
    if (prompt->size() > kMostPrompts)
      body.fail("prompt", fmt::format("has {} entries, at most {} are allowed", prompt->size(), kMostPrompts));
    for (const Json& one : *prompt) prompts.push_back(encode(one));
  } else {
    prompts.push_back(encode(*prompt));
  }
  for (const auto& tokens : prompts) {
    if (tokens.empty()) body.fail("prompt", "has no tokens");
  }
  return prompts;
}

}  // namespace

std::vector<OpenAiCompletionRequest> parse_openai_completions(const Json& json, const Tokenizer& tokenizer) {
  const JsonFields body(json);
  if (const auto n = body.integer("n", 1, 128); n && *n != 1) body.fail("n", "above 1 is not supported");
  if (const auto best_of = body.integer("best_of", 1, 128); best_of && *best_of != 1)
    body.fail("best_of", "above 1 is not supported");
  if (body.has("suffix")) body.fail("suffix", "is not supported");
  OpenAiCompletionRequest request;
  // OpenAI's default is 16 tokens, and 0 is allowed: it asks for the prompt's log-probabilities.
  constexpr std::int64_t kDefaultTokens = 16;
  Json without_limit = json;
  without_limit.erase("max_tokens");
  request.engine.generation = read_generation(JsonFields(without_limit), /*thinking=*/false);
  const std::int64_t max_tokens = body.integer("max_tokens", 0, std::int64_t{1} << 40).value_or(kDefaultTokens);
  request.engine.generation.max_tokens = std::max<std::int64_t>(max_tokens, 1);
  request.echo = body.boolean("echo").value_or(false);
  request.score_only = max_tokens == 0;
  const auto logprobs = body.integer("logprobs", 0, 20);
  request.logprobs = logprobs.has_value();
  if (logprobs) request.engine.generation.top_logprobs = static_cast<int>(*logprobs);
  request.engine.score_prompt = request.echo && request.logprobs;
  request.stream = body.boolean("stream").value_or(false);
  if (const auto options = body.object("stream_options"))
    request.include_usage = options->boolean("include_usage").value_or(false);
  std::vector<OpenAiCompletionRequest> requests;
  for (auto& prompt : read_prompts(body, tokenizer)) {
    request.engine.prompt = std::move(prompt);
    requests.push_back(request);
  }
  if (request.stream && requests.size() > 1) body.fail("stream", "is possible for one prompt only");
  return requests;
}

OpenAiCompletionWriter::OpenAiCompletionWriter(const OpenAiCompletionRequest& request, const LoadedModel& model,
                                               int index)
    : model_(model),
      prompt_(request.engine.prompt),
      echo_(request.echo),
      logprobs_(request.logprobs),
      score_only_(request.score_only),
      index_(index) {}

std::string OpenAiCompletionWriter::echoed() const {
  return echo_ ? model_.tokenizer().decode(prompt_) : "";
}

void OpenAiCompletionWriter::add_logprob(const std::optional<Sampled>& sampled, std::int32_t token) {
  const Tokenizer& tokenizer = model_.tokenizer();
  const std::string text = token_text(token, tokenizer);
  tokens_.push_back(text);
  text_offset_.push_back(offset_);
  offset_ += text.size();
  if (!sampled) {
    token_logprobs_.push_back(nullptr);
    top_logprobs_.push_back(nullptr);
    return;
  }
  token_logprobs_.push_back(std::max(sampled->logprob, -9999.0F));
  Json top = Json::object();
  for (const TokenLogprob& other : sampled->top)
    top[token_text(other.token, tokenizer)] = std::max(other.logprob, -9999.0F);
  top_logprobs_.push_back(std::move(top));
}

std::string OpenAiCompletionWriter::add(const StreamEvent& event) {
  if (const auto* prompt = std::get_if<PromptLogprobs>(&event)) {
    add_logprob({}, prompt_.front());
    for (const Sampled& sampled : prompt->tokens) add_logprob(sampled, sampled.token);
  } else if (const auto* token = std::get_if<GeneratedToken>(&event)) {
    if (score_only_) return {};
    if (logprobs_ && !token->is_end) add_logprob(token->sampled, token->sampled.token);
    return token->text + token->control;
  } else if (const auto* failed = std::get_if<Failed>(&event)) {
    throw ApiError({.status = 500, .type = "server_error"}, failed->message);
  } else if (const auto* finished = std::get_if<Finished>(&event)) {
    finished_ = *finished;
    if (score_only_) finished_->generated_tokens = 0;
  }
  return {};
}

Json OpenAiCompletionWriter::choice(const std::string& text) {
  Json result = {{"index", index_}, {"text", text}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
  if (logprobs_ && !tokens_.empty()) {
    result["logprobs"] = {{"tokens", std::move(tokens_)},
                          {"token_logprobs", std::move(token_logprobs_)},
                          {"top_logprobs", std::move(top_logprobs_)},
                          {"text_offset", std::move(text_offset_)}};
    for (Json* array : {&tokens_, &token_logprobs_, &top_logprobs_, &text_offset_}) *array = Json::array();
  }
  if (finished_) result["finish_reason"] = finished_->reason == FinishReason::kLength ? "length" : "stop";
  return result;
}

}  // namespace lily
