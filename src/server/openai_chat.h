// OpenAI's /v1/chat/completions as JSON, without HTTP: the request's fields, the reply as one object or as stream
// chunks.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/chat_service.h"

namespace lily {

struct OpenAiChatRequest {
  ChatRequest chat;
  bool stream = false;
  bool include_usage = false;
  bool logprobs = false;
};

/// Throws ApiError (400) that names the field.
OpenAiChatRequest parse_openai_chat(const nlohmann::ordered_json& body);

/// Collects the steps of a reply and says them in OpenAI's words.
class OpenAiChatWriter {
 public:
  OpenAiChatWriter(const OpenAiChatRequest& request, const LoadedModel& model, std::string served_name);

  /// The first chunk: only the role.
  nlohmann::ordered_json opening();
  /// The chunks of one step; the last step gives the finish reason and, if asked for, the usage.
  std::vector<nlohmann::ordered_json> chunks(const ReplyStep& step, const ChatReply& reply);
  /// For a reply that is not streamed: every step, then the whole.
  void add(const ReplyStep& step);
  nlohmann::ordered_json whole(const Finished& finished, const ChatReply& reply);

 private:
  using Json = nlohmann::ordered_json;

  Json envelope(const char* object) const;
  Json chunk(Json delta);
  void count(const ReplyStep& step);
  Json take_logprobs();

  const LoadedModel& model_;
  std::string id_;
  std::string served_name_;
  std::int64_t created_;
  bool include_usage_;
  bool logprobs_;
  std::int64_t reasoning_tokens_ = 0;
  Json pending_logprobs_ = Json::array();
};

/// "stop", "length" or "tool_calls".
std::string openai_finish_reason(const Finished& finished, const ChatReply& reply);

}  // namespace lily
