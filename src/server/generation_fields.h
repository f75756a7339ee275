// The sampling and format fields that OpenAI's chat and text completions share, with the extensions local clients know
// (top_k, min_p, repetition_penalty, ignore_eos, chat_template_kwargs, thinking_budget).
#pragma once

#include "server/chat_request.h"
#include "server/json_fields.h"

namespace lily {

/// Thinking switches: enable_thinking, chat_template_kwargs.{enable_thinking, preserve_thinking}, reasoning_effort
/// ("none" and "minimal": off).
void read_thinking(const JsonFields& body, ChatOptions& options);

/// One field with OpenAI's words for how much to think; all but two of them say: think.
void read_effort(const JsonFields& fields, const char* name, ChatOptions& options);

/// The text of a JSON schema for ResponseFormat. Refuses what would take minutes to prepare.
std::string read_schema(const JsonFields& fields, const char* name);

/// Everything of GenerationOptions that a request can set; what is absent has the model card's defaults for the
/// thinking mode.
GenerationOptions read_generation(const JsonFields& body, bool thinking);

}  // namespace lily
