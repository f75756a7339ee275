// OpenAI's /v1/completions as JSON, without HTTP: text or token ids in, with echo and log-probabilities of the prompt,
// which evaluation harnesses need.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/loaded_model.h"

namespace lily {

struct OpenAiCompletionRequest {
  EngineRequest engine;
  bool echo = false;
  bool stream = false;
  bool include_usage = false;
  bool logprobs = false;
  bool score_only = false;  // max_tokens 0 with echo: only the prompt is wanted
};

/// One request for each prompt: `prompt` may be a text, an array of ids, or an array of either. Throws ApiError (400).
std::vector<OpenAiCompletionRequest> parse_openai_completions(const nlohmann::ordered_json& body,
                                                              const Tokenizer& tokenizer);

/// Collects the events of one prompt's completion.
class OpenAiCompletionWriter {
 public:
  using Json = nlohmann::ordered_json;

  OpenAiCompletionWriter(const OpenAiCompletionRequest& request, const LoadedModel& model, int index);

  /// The text that came with the event; keeps what choice() needs.
  std::string add(const StreamEvent& event);
  /// A choice with the given text and the log-probabilities since the last call.
  Json choice(const std::string& text);
  const std::optional<Finished>& finished() const { return finished_; }
  /// The prompt as text, if it is to be echoed.
  std::string echoed() const;

 private:
  void add_logprob(const std::optional<Sampled>& sampled, std::int32_t token);

  const LoadedModel& model_;
  std::vector<std::int32_t> prompt_;
  bool echo_;
  bool logprobs_;
  bool score_only_;
  int index_;
  Json tokens_ = Json::array();
  Json token_logprobs_ = Json::array();
  Json top_logprobs_ = Json::array();
  Json text_offset_ = Json::array();
  std::size_t offset_ = 0;
  std::optional<Finished> finished_;
};

}  // namespace lily
