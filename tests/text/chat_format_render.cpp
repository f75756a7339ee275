// Renders conversations for chat_format_oracle.py: each line of standard input is {"messages", "tools", "options"},
// each line of output {"pieces": [[text, is control], ...], "cuts": [system_end, last_query_begin, last_query_end,
// reply_begin]} or {"error": message}.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "support/error.h"
#include "text/chat_format_json.h"

int main() {
  using Json = nlohmann::ordered_json;
  for (std::string line; std::getline(std::cin, line);) {
    Json result;
    try {
      const Json input = Json::parse(line);
      const auto messages = lily::chat_messages_from_json(input.at("messages"));
      const auto tools = lily::tools_from_json(input.at("tools"));
      const Json& given = input.at("options");
      lily::ChatOptions options;
      options.enable_thinking = given.value("enable_thinking", true);
      options.preserve_thinking = given.value("preserve_thinking", false);
      options.add_generation_prompt = given.value("add_generation_prompt", true);
      const lily::RenderedChat chat = lily::render_chat(messages, tools, options);
      result["pieces"] = Json::array();
      for (const lily::Piece& piece : chat.pieces) result["pieces"].push_back({piece.text, piece.control});
      result["cuts"] = {chat.system_end, chat.last_query_begin, chat.last_query_end, chat.reply_begin};
    } catch (const lily::Error& error) {
      result = {{"error", error.what()}};
    }
    std::cout << result.dump() << '\n';
  }
}
