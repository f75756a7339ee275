#include "chat/chat_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>

#include "support/error.h"
#include "text/chat_format_json.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

Json read(const std::filesystem::path& file) {
  constexpr std::uintmax_t kLargest = std::uintmax_t{64} << 20;
  std::error_code problem;
  const std::uintmax_t size = std::filesystem::file_size(file, problem);
  if (problem) throw_error("{}: {}", file.string(), problem.message());
  if (size > kLargest) throw_error("{}: {} bytes, expected at most {}", file.string(), size, kLargest);
  std::ifstream input(file, std::ios::binary);
  if (!input) throw_error("{}: {}", file.string(), std::strerror(errno));
  try {
    return Json::parse(std::istreambuf_iterator<char>(input), std::istreambuf_iterator<char>());
  } catch (const Json::exception& error) {
    throw_error("{}: not valid JSON ({})", file.string(), error.what());
  }
}

template <typename Read>
auto named(const std::filesystem::path& file, Read read_it) {
  try {
    return read_it();
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", file.string(), error.what()), error.hint());
  }
}

}  // namespace

void save_chat(const std::filesystem::path& file, const ChatFile& chat) {
  Json json = {{"messages", chat_messages_to_json(chat.messages)}};
  for (const ToolDefinition& tool : chat.tools) json["tools"].push_back(Json::parse(tool.json));
  std::filesystem::path whole = file;
  whole += ".part";
  std::ofstream output(whole, std::ios::binary | std::ios::trunc);
  output << json.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
  output.close();
  if (!output) throw_error("{}: cannot be written: {}", whole.string(), std::strerror(errno));
  std::error_code problem;
  std::filesystem::rename(whole, file, problem);
  if (problem) throw_error("{}: cannot be written: {}", file.string(), problem.message());
}

ChatFile load_chat(const std::filesystem::path& file) {
  const Json json = read(file);
  return named(file, [&] {
    ChatFile chat;
    if (json.is_array()) {
      chat.messages = chat_messages_from_json(json);
    } else if (json.is_object() && json.contains("messages")) {
      chat.messages = chat_messages_from_json(json["messages"]);
      if (json.contains("tools")) chat.tools = tools_from_json(json["tools"]);
    } else {
      throw Error("found no messages", "expected an array of them, or an object that has it as \"messages\"");
    }
    return chat;
  });
}

std::vector<ToolDefinition> load_tools(const std::filesystem::path& file) {
  const Json json = read(file);
  return named(file,
               [&] { return tools_from_json(json.is_object() && json.contains("tools") ? json["tools"] : json); });
}

}  // namespace lily
