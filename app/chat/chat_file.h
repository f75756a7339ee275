// A conversation as a JSON file, in the form of OpenAI's chat completions: {"messages": [...], "tools": [...]}.
#pragma once

#include <filesystem>
#include <vector>

#include "text/chat_format.h"
#include "text/tool_call_schema.h"

namespace lily {

struct ChatFile {
  std::vector<ChatMessage> messages;
  std::vector<ToolDefinition> tools;
};

/// Throws Error when it cannot be written. An existing file is replaced as a whole.
void save_chat(const std::filesystem::path& file, const ChatFile& chat);

/// Also takes an array of messages alone. Throws Error that says what is wrong with the file.
ChatFile load_chat(const std::filesystem::path& file);

/// An array of tools, or an object that has it as "tools".
std::vector<ToolDefinition> load_tools(const std::filesystem::path& file);

}  // namespace lily
