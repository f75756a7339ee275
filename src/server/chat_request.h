// What the chat APIs (OpenAI chat completions and responses, Anthropic messages) amount to. Each API parses its JSON
// into a ChatRequest and writes a ChatReply back in its own words; what is between is the same for all.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/generation.h"
#include "text/chat_format.h"
#include "text/tool_call_schema.h"

namespace lily {

struct ToolChoice {
  enum class Kind { kAuto, kNone, kRequired, kNamed };
  Kind kind = Kind::kAuto;
  std::string name;      // of kNamed
  bool parallel = true;  // false: at most one call
};

/// What the content must be, after the thinking.
struct ResponseFormat {
  enum class Kind { kText, kJsonObject, kJsonSchema };
  Kind kind = Kind::kText;
  std::string schema;  // JSON text of kJsonSchema
};

struct ChatRequest {
  std::vector<ChatMessage> messages;
  std::vector<ToolDefinition> tools;
  ToolChoice tool_choice;
  ResponseFormat response_format;
  ChatOptions format;
  GenerationOptions generation;  // in_thinking and constraint are set by the service
};

}  // namespace lily
