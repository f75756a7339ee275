#include "text/chat_format_json.h"

#include <nlohmann/json.hpp>

#include "support/error.h"
#include "text/tool_call_json.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

const char* role_name(Role role) {
  switch (role) {
    case Role::kSystem:
      return "system";
    case Role::kDeveloper:
      return "developer";
    case Role::kUser:
      return "user";
    case Role::kAssistant:
      return "assistant";
    case Role::kTool:
      return "tool";
  }
  return "";
}

// Reads one message; `where_` names it in errors, e.g. "messages[2]".
class MessageReader {
 public:
  MessageReader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  ChatMessage read() const {
    if (!json_.is_object()) throw_error("{}: expected an object, found {}", where_, json_.type_name());
    ChatMessage message;
    message.role = role();
    message.content = content();
    if (const auto it = json_.find("reasoning_content"); it != json_.end() && it->is_string()) {
      message.reasoning_content = it->get<std::string>();
    }
    message.tool_call_id = text(json_, "tool_call_id");
    message.name = text(json_, "name");
    if (message.role == Role::kAssistant) message.tool_calls = tool_calls();
    return message;
  }

 private:
  // An optional string member; other types count as absent, since it is not rendered.
  static std::string text(const Json& object, const char* key) {
    const auto it = object.find(key);
    return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
  }

  Role role() const {
    const std::string found = text(json_, "role");
    for (const Role known : {Role::kSystem, Role::kDeveloper, Role::kUser, Role::kAssistant, Role::kTool}) {
      if (found == role_name(known)) return known;
    }
    throw_error("{}.role: found '{}', expected system, developer, user, assistant or tool", where_, found);
  }

  std::vector<ContentPart> content() const {
    const auto it = json_.find("content");
    if (it == json_.end() || it->is_null()) return {};
    if (it->is_string()) return {{ContentPart::Kind::kText, it->get<std::string>()}};
    if (!it->is_array()) {
      throw_error("{}.content: found {}, expected a string, null or an array of parts", where_, it->type_name());
    }
    std::vector<ContentPart> parts;
    for (std::size_t i = 0; i < it->size(); ++i) {
      parts.push_back(part((*it)[i], fmt::format("{}.content[{}]", where_, i)));
    }
    return parts;
  }

  static ContentPart part(const Json& json, const std::string& where) {
    if (!json.is_object()) throw_error("{}: expected an object, found {}", where, json.type_name());
    const std::string type = text(json, "type");
    if (json.contains("image") || json.contains("image_url") || type == "image") {
      return {ContentPart::Kind::kImage, {}};
    }
    if (json.contains("video") || type == "video") return {ContentPart::Kind::kVideo, {}};
    const auto it = json.find("text");
    if (it == json.end() || !it->is_string()) {
      throw_error("{}: a part of type '{}' without a string 'text'; expected text parts", where, type);
    }
    return {ContentPart::Kind::kText, it->get<std::string>()};
  }

  std::vector<ToolCall> tool_calls() const {
    const auto it = json_.find("tool_calls");
    if (it == json_.end() || it->is_null()) return {};
    if (!it->is_array()) throw_error("{}.tool_calls: expected an array, found {}", where_, it->type_name());
    std::vector<ToolCall> calls;
    for (std::size_t i = 0; i < it->size(); ++i) {
      calls.push_back(tool_call((*it)[i], fmt::format("{}.tool_calls[{}]", where_, i)));
    }
    return calls;
  }

  static ToolCall tool_call(const Json& json, const std::string& where) {
    if (!json.is_object()) throw_error("{}: expected an object, found {}", where, json.type_name());
    const auto wrapped = json.find("function");
    const Json& function = wrapped == json.end() ? json : *wrapped;
    if (!function.is_object()) throw_error("{}.function: expected an object, found {}", where, function.type_name());
    ToolCall call;
    call.id = text(json, "id");
    call.name = text(function, "name");
    if (call.name.empty()) throw_error("{}: the function has no name", where);
    const auto arguments = function.find("arguments");
    if (arguments == function.end() || arguments->is_null()) {
      call.arguments = "{}";
    } else if (arguments->is_string()) {
      call.arguments = arguments->get<std::string>();
    } else if (arguments->is_object()) {
      call.arguments = chat_json(*arguments);
    } else {
      throw_error("{}.arguments: found {}, expected an object or its JSON text", where, arguments->type_name());
    }
    return call;
  }

  const Json& json_;
  std::string where_;
};

Json content_to_json(const std::vector<ContentPart>& content) {
  if (content.empty()) return nullptr;
  if (content.size() == 1 && content.front().kind == ContentPart::Kind::kText) return content.front().text;
  Json parts = Json::array();
  for (const ContentPart& part : content) {
    switch (part.kind) {
      case ContentPart::Kind::kText:
        parts.push_back({{"type", "text"}, {"text", part.text}});
        break;
      case ContentPart::Kind::kImage:
        parts.push_back({{"type", "image"}});
        break;
      case ContentPart::Kind::kVideo:
        parts.push_back({{"type", "video"}});
        break;
    }
  }
  return parts;
}

}  // namespace

std::vector<ChatMessage> chat_messages_from_json(const Json& messages) {
  if (!messages.is_array()) throw_error("messages: expected an array, found {}", messages.type_name());
  std::vector<ChatMessage> all;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    all.push_back(MessageReader(messages[i], fmt::format("messages[{}]", i)).read());
  }
  return all;
}

std::vector<ToolDefinition> tools_from_json(const Json& tools) {
  std::vector<ToolDefinition> all;
  if (tools.is_null()) return all;
  if (!tools.is_array()) throw_error("tools: expected an array, found {}", tools.type_name());
  for (std::size_t i = 0; i < tools.size(); ++i) {
    if (!tools[i].is_object()) throw_error("tools[{}]: expected an object, found {}", i, tools[i].type_name());
    all.push_back(ToolDefinition::from_json(tools[i]));
  }
  return all;
}

Json chat_messages_to_json(const std::vector<ChatMessage>& messages) {
  Json all = Json::array();
  for (const ChatMessage& message : messages) {
    Json json = {{"role", role_name(message.role)}, {"content", content_to_json(message.content)}};
    if (message.reasoning_content) json["reasoning_content"] = *message.reasoning_content;
    for (const ToolCall& call : message.tool_calls) {
      json["tool_calls"].push_back(
          {{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    }
    if (!message.tool_call_id.empty()) json["tool_call_id"] = message.tool_call_id;
    if (!message.name.empty()) json["name"] = message.name;
    all.push_back(std::move(json));
  }
  return all;
}

}  // namespace lily
