// Anthropic's /v1/messages as JSON, without HTTP: the request's fields, the reply as one message or as stream events.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "server/chat_service.h"

namespace lily {

struct AnthropicRequest {
  ChatRequest chat;
  bool stream = false;
};

/// Throws ApiError (400) that names the field. System blocks that begin with "x-anthropic-billing-header:" change with
/// every request and would make each one start from nothing: they are left out unless `keep_billing_header`.
AnthropicRequest parse_anthropic(const nlohmann::ordered_json& body, bool keep_billing_header, bool counting_only);

class AnthropicWriter {
 public:
  AnthropicWriter(const ChatReply& reply, std::string served_name);

  /// "event: ...\ndata: ...\n\n" texts: the beginning, and what one step adds.
  std::string opening() const;
  std::string events(const ReplyStep& step, const ChatReply& reply);
  /// The whole message of a reply that is not streamed.
  nlohmann::ordered_json whole(const Finished& finished, const ChatReply& reply) const;

 private:
  using Json = nlohmann::ordered_json;
  enum class Block { kNone, kThinking, kText, kToolUse };

  std::string open(Block block, Json content);
  std::string delta(Json content) const;
  std::string close();

  std::string id_;
  std::string served_name_;
  std::int64_t prompt_tokens_;
  Block block_ = Block::kNone;
  int index_ = -1;  // of the open block
};

}  // namespace lily
