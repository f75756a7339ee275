#include <algorithm>
#include <cstdlib>

#include "server/generation_fields.h"
#include "server/json_fields.h"
#include "server/openai_responses.h"
#include "text/chat_format_json.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

void refuse_unsupported(const JsonFields& body) {
  if (body.has("previous_response_id")) {
    body.fail("previous_response_id",
              "is not supported: responses are not stored, send the whole conversation as input");
  }
  for (const char* name : {"conversation", "prompt"}) {
    if (body.has(name)) body.fail(name, "is not supported: nothing is stored on this server");
  }
  if (body.boolean("background").value_or(false)) body.fail("background", "is not supported");
}

/// A text, or an array of text parts.
std::string text_of(const JsonFields& item, const char* name) {
  const Json* content = item.find(name);
  if (content == nullptr) return {};
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) item.fail(name, "expected a text or an array of parts");
  std::string text;
  for (const Json& part : *content) {
    const JsonFields fields(part, std::string("input.") + name);
    const std::string type = fields.text("type").value_or("");
    const bool known = type == "input_text" || type == "output_text" || type == "text" || type == "reasoning_text" ||
                       type == "summary_text" || type == "refusal";
    if (!known) item.fail(name, "has a part of type '" + type + "', only text is supported");
    text += fields.text(type == "refusal" ? "refusal" : "text").value_or("");
  }
  return text;
}

/// Items of the input -> messages. What the assistant says between two other items is one message.
class InputReader {
 public:
  std::vector<ChatMessage> read(const JsonFields& body) {
    if (const auto instructions = body.text("instructions"))
      messages_.push_back(ChatMessage::of(Role::kSystem, *instructions));
    const Json* input = body.find("input");
    if (input == nullptr) body.fail("input", "is missing");
    if (input->is_string()) {
      messages_.push_back(ChatMessage::of(Role::kUser, input->get<std::string>()));
      return std::move(messages_);
    }
    if (!input->is_array() || input->empty()) body.fail("input", "expected a text or a non-empty array of items");
    for (std::size_t i = 0; i < input->size(); ++i) add(JsonFields((*input)[i], fmt::format("input[{}]", i)));
    return std::move(messages_);
  }

 private:
  void add(const JsonFields& item) {
    const std::string type = item.text("type").value_or("message");
    if (type == "message") {
      add_message(item);
    } else if (type == "reasoning") {
      std::string text = text_of(item, "content");
      if (text.empty()) text = text_of(item, "summary");
      ChatMessage& turn = assistant();
      turn.reasoning_content = turn.reasoning_content.value_or("") + text;
    } else if (type == "function_call") {
      const auto name = item.text("name");
      if (!name || name->empty()) item.fail("name", "is missing");
      assistant().tool_calls.push_back(
          {.id = item.text("call_id").value_or(""), .name = *name, .arguments = item.text("arguments").value_or("{}")});
    } else if (type == "function_call_output") {
      ChatMessage result = ChatMessage::of(Role::kTool, text_of(item, "output"));
      result.tool_call_id = item.text("call_id").value_or("");
      messages_.push_back(std::move(result));
    } else {
      item.fail("type", "is '" + type + "', which is not supported");
    }
  }

  void add_message(const JsonFields& item) {
    const std::string role = item.text("role").value_or("");
    if (!item.has("content")) item.fail("content", "is missing");
    const std::string text = text_of(item, "content");
    if (role == "assistant") {
      ChatMessage& turn = assistant();
      const std::string before = turn.text();
      turn.content = ChatMessage::of(Role::kAssistant, before + text).content;
    } else if (role == "user") {
      messages_.push_back(ChatMessage::of(Role::kUser, text));
    } else if (role == "system" || role == "developer") {
      messages_.push_back(ChatMessage::of(role == "system" ? Role::kSystem : Role::kDeveloper, text));
    } else {
      item.fail("role", "is '" + role + "', expected system, developer, user or assistant");
    }
  }

  ChatMessage& assistant() {
    if (messages_.empty() || messages_.back().role != Role::kAssistant) {
      messages_.emplace_back();
      messages_.back().role = Role::kAssistant;
    }
    return messages_.back();
  }

  std::vector<ChatMessage> messages_;
};

std::vector<ToolDefinition> read_tools(const JsonFields& body) {
  const Json* tools = body.find("tools");
  if (tools == nullptr) return {};
  if (!tools->is_array()) body.fail("tools", "expected an array");
  Json chat = Json::array();
  for (std::size_t i = 0; i < tools->size(); ++i) {
    const JsonFields tool((*tools)[i], fmt::format("tools[{}]", i));
    const std::string type = tool.text("type").value_or("");
    if (type != "function") tool.fail("type", "is '" + type + "', only functions are supported");
    if (tool.text("name").value_or("").empty()) tool.fail("name", "is missing");
    Json function = Json::object();
    for (const char* name : {"name", "description", "parameters"}) {
      if (const Json* value = tool.find(name)) function[name] = *value;
    }
    chat.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return tools_from_json(chat);
}

ToolChoice read_tool_choice(const JsonFields& body) {
  ToolChoice choice;
  choice.parallel = body.boolean("parallel_tool_calls").value_or(true);
  const Json* value = body.find("tool_choice");
  if (value == nullptr || *value == "auto") return choice;
  if (*value == "none") {
    choice.kind = ToolChoice::Kind::kNone;
  } else if (*value == "required") {
    choice.kind = ToolChoice::Kind::kRequired;
  } else if (value->is_object() && JsonFields(*value, "tool_choice").text("name")) {
    choice.kind = ToolChoice::Kind::kNamed;
    choice.name = *JsonFields(*value, "tool_choice").text("name");
  } else {
    body.fail("tool_choice", "expected 'none', 'auto', 'required' or {\"type\": \"function\", \"name\": ...}");
  }
  return choice;
}

ResponseFormat read_format(const JsonFields& body) {
  ResponseFormat format;
  const auto text = body.object("text");
  const auto fields = text ? text->object("format") : std::nullopt;
  if (!fields) return format;
  const std::string type = fields->text("type").value_or("");
  if (type == "json_object") {
    format.kind = ResponseFormat::Kind::kJsonObject;
  } else if (type == "json_schema") {
    format.kind = ResponseFormat::Kind::kJsonSchema;
    format.schema = read_schema(*fields, "schema");
  } else if (type != "text") {
    fields->fail("type", "is '" + type + "', expected text, json_object or json_schema");
  }
  return format;
}

/// 0.95 and not the digits of the double that is nearest to the float.
double decimal(float value) {
  return std::strtod(fmt::format("{}", value).c_str(), nullptr);
}

Json repeated_fields(const Json& body, const ChatRequest& chat) {
  const auto or_default = [&](const char* name, Json value) {
    const auto found = body.find(name);
    return found == body.end() || found->is_null() ? value : *found;
  };
  const SamplingParams& sampling = chat.generation.sampling;
  return {{"instructions", or_default("instructions", nullptr)},
          {"max_output_tokens", or_default("max_output_tokens", nullptr)},
          {"metadata", or_default("metadata", Json::object())},
          {"parallel_tool_calls", chat.tool_choice.parallel},
          {"previous_response_id", nullptr},
          {"reasoning", or_default("reasoning", {{"effort", nullptr}, {"summary", nullptr}})},
          {"store", false},
          {"temperature", or_default("temperature", decimal(sampling.temperature))},
          {"text", or_default("text", {{"format", {{"type", "text"}}}})},
          {"tool_choice", or_default("tool_choice", "auto")},
          {"tools", or_default("tools", Json::array())},
          {"top_p", or_default("top_p", decimal(sampling.top_p))},
          {"truncation", "disabled"}};
}

}  // namespace

OpenAiResponsesRequest parse_openai_responses(const Json& json) {
  const JsonFields body(json);
  refuse_unsupported(body);
  OpenAiResponsesRequest request;
  ChatRequest& chat = request.chat;
  chat.messages = InputReader().read(body);
  chat.tools = read_tools(body);
  chat.tool_choice = read_tool_choice(body);
  chat.response_format = read_format(body);
  if (const auto reasoning = body.object("reasoning")) read_effort(*reasoning, "effort", chat.format);
  read_thinking(body, chat.format);
  chat.generation = read_generation(body, chat.format.enable_thinking);
  if (const auto most = body.integer("max_output_tokens", 1, std::int64_t{1} << 40)) chat.generation.max_tokens = *most;
  const std::vector<std::string> included = body.texts("include", 64);
  request.logprobs = std::find(included.begin(), included.end(), "message.output_text.logprobs") != included.end();
  if (request.logprobs)
    chat.generation.top_logprobs = static_cast<int>(body.integer("top_logprobs", 0, 20).value_or(0));
  request.stream = body.boolean("stream").value_or(false);
  request.echoed = repeated_fields(json, chat);
  return request;
}

}  // namespace lily
