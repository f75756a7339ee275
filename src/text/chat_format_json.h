// Messages as clients send them (OpenAI's chat completions, and what the official template takes) -> ChatMessage.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "text/chat_format.h"

namespace lily {

/// `messages`: an array. content: a string, null, or parts {"type", "text" | "image_url" | "video" ...}. tool_calls:
/// {"id", "function": {"name", "arguments"}} or the inner object alone; arguments: JSON text or an object. Throws Error
/// that says which message, what was found and what is expected.
std::vector<ChatMessage> chat_messages_from_json(const nlohmann::ordered_json& messages);

/// `tools`: an array, or null for none.
std::vector<ToolDefinition> tools_from_json(const nlohmann::ordered_json& tools);

/// Back to JSON, arguments as a string. chat_messages_from_json() of it gives the same messages, `sampled` apart.
nlohmann::ordered_json chat_messages_to_json(const std::vector<ChatMessage>& messages);

}  // namespace lily
