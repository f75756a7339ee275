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
  } catch (const Json::parse_error& error) {
    throw_error("{}: not valid JSON at byte {}", file.string(), error.byte);
  } catch (const Json::exception&) {  // a number too large for any type
    throw_error("{}: not valid JSON", file.string());
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

/// Where the file really is. Throws Error for what is there and is no file: it must not be replaced.
std::filesystem::path place_of(const std::filesystem::path& file) {
  std::error_code problem;
  const auto status = std::filesystem::status(file, problem);
  if (!std::filesystem::exists(status)) {
    if (std::filesystem::is_symlink(file, problem)) throw_error("{}: is a link to nowhere", file.string());
    return file;
  }
  if (!std::filesystem::is_regular_file(status)) throw_error("{}: is no regular file", file.string());
  return std::filesystem::canonical(file);
}

/// A name in the same directory that nothing has.
std::filesystem::path beside(const std::filesystem::path& file) {
  std::error_code ignored;
  for (int i = 0;; ++i) {
    std::filesystem::path free = file;
    free += fmt::format(".part{}", i);
    if (!std::filesystem::exists(std::filesystem::symlink_status(free, ignored))) return free;
  }
}

}  // namespace

void save_chat(const std::filesystem::path& wanted, const ChatFile& chat) {
  const std::filesystem::path file = place_of(wanted);
  Json json = {{"messages", chat_messages_to_json(chat.messages)}};
  for (const ToolDefinition& tool : chat.tools) json["tools"].push_back(Json::parse(tool.json));
  const std::filesystem::path whole = beside(file);
  std::ofstream output(whole, std::ios::binary | std::ios::trunc);
  output << json.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
  output.close();
  std::error_code problem;
  if (!output) {
    const int reason = errno;
    std::filesystem::remove(whole, problem);
    throw_error("{}: cannot be written: {}", file.string(), std::strerror(reason));
  }
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
