// OpenAI's /v1/responses as JSON, without HTTP: the request's fields, the reply as one response or as stream events.
// Stateless: nothing is stored, so a conversation is sent whole each time, which the prefix cache makes cheap.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "server/api_error.h"
#include "server/chat_service.h"

namespace lily {

struct OpenAiResponsesRequest {
  ChatRequest chat;
  bool stream = false;
  bool logprobs = false;
  nlohmann::ordered_json echoed;  // the fields that a response repeats
};

/// Throws ApiError (400) that names the field.
OpenAiResponsesRequest parse_openai_responses(const nlohmann::ordered_json& body);

/// Says the steps of a reply in the words of this API: output items that open and close one after the other.
class OpenAiResponsesWriter {
 public:
  OpenAiResponsesWriter(const OpenAiResponsesRequest& request, const LoadedModel& model, std::string served_name);

  /// "event: ...\ndata: ...\n\n" texts: the beginning, what one step adds, and the end of a reply that failed.
  std::string opening();
  std::string events(const ReplyStep& step);
  std::string failure(const ApiError& error);
  /// The response as it stands: whole after the last step.
  nlohmann::ordered_json whole() const { return response_; }

 private:
  using Json = nlohmann::ordered_json;
  enum class Item { kNone, kReasoning, kMessage, kFunctionCall };

  std::string event(const char* type, Json fields);
  std::string item_event(const char* type, Json fields);
  std::string open(Item kind, Json item);
  std::string open_text(Item kind);
  std::string text_delta(Item kind, const std::string& text);
  std::string close(const char* status);
  std::string close_text();
  std::string say(const ReplyEvent& event);
  std::string end(const Finished& finished);
  Json take_logprobs();

  const LoadedModel& model_;
  bool logprobs_;
  Json response_;
  Item open_ = Item::kNone;
  Json item_;         // the open one
  std::string text_;  // its text or arguments so far
  Json pending_logprobs_ = Json::array();
  Json item_logprobs_ = Json::array();
  std::int64_t reasoning_tokens_ = 0;
  std::int64_t sequence_number_ = 0;
};

}  // namespace lily
