#include "server/anthropic.h"

#include <algorithm>
#include <limits>

#include "server/json_fields.h"
#include "server/json_shape.h"
#include "text/chat_format_json.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kBillingHeader = "x-anthropic-billing-header:";

std::string event(const char* name, Json json) {
  Json typed = {{"type", name}};
  typed.update(json);
  return fmt::format("event: {}\ndata: {}\n\n", name, typed.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string block_text(const Json& block, const std::string& where) {
  const JsonFields fields(block, where);
  const std::string type = fields.text("type").value_or("");
  if (type != "text") fields.fail("type", "is '" + type + "', only text is supported here");
  return fields.text("text").value_or("");
}

/// A text, or an array of text blocks.
std::string joined_text(const Json& content, const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) throw bad_field(where, "expected a text or an array of blocks");
  std::string text;
  for (std::size_t i = 0; i < content.size(); ++i) text += block_text(content[i], fmt::format("{}[{}]", where, i));
  return text;
}

std::string system_text(const Json& system, bool keep_billing_header) {
  if (system.is_string()) return system.get<std::string>();
  if (!system.is_array()) throw bad_field("system", "expected a text or an array of text blocks");
  std::string text;
  for (std::size_t i = 0; i < system.size(); ++i) {
    const std::string block = block_text(system[i], fmt::format("system[{}]", i));
    if (!keep_billing_header && block.starts_with(kBillingHeader)) continue;
    if (!text.empty()) text += "\n\n";
    text += block;
  }
  return text;
}

/// One message can hold results of tools and text: in the model's format these are turns of their own, results first.
void read_user_blocks(const Json& content, const std::string& where, std::vector<ChatMessage>& messages) {
  std::string text;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string path = fmt::format("{}[{}]", where, i);
    const JsonFields block(content[i], path);
    if (block.text("type") == "tool_result") {
      ChatMessage result;
      const Json* body = block.find("content");
      result = ChatMessage::of(Role::kTool, body == nullptr ? "" : joined_text(*body, path + ".content"));
      result.tool_call_id = block.text("tool_use_id").value_or("");
      messages.push_back(std::move(result));
    } else {
      text += block_text(content[i], path);
    }
  }
  if (!text.empty()) messages.push_back(ChatMessage::of(Role::kUser, text));
}

ChatMessage read_assistant_blocks(const Json& content, const std::string& where) {
  std::string text;
  std::string thinking;
  std::vector<ToolCall> calls;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string path = fmt::format("{}[{}]", where, i);
    const JsonFields block(content[i], path);
    const std::string type = block.text("type").value_or("");
    if (type == "tool_use") {
      const Json* input = block.find("input");
      if (input != nullptr && !input->is_object()) block.fail("input", "expected an object");
      if (block.text("name").value_or("").empty()) block.fail("name", "is missing");
      calls.push_back({.id = block.text("id").value_or(""),
                       .name = block.text("name").value_or(""),
                       .arguments = input == nullptr ? "{}" : input->dump()});
    } else if (type == "thinking") {
      thinking += block.text("thinking").value_or("");
    } else if (type != "redacted_thinking") {
      text += block_text(content[i], path);
    }
  }
  ChatMessage message = ChatMessage::of(Role::kAssistant, text);
  message.reasoning_content = thinking;
  message.tool_calls = std::move(calls);
  return message;
}

std::vector<ChatMessage> read_messages(const JsonFields& body) {
  const Json* array = body.find("messages");
  if (array == nullptr || !array->is_array() || array->empty()) body.fail("messages", "is missing, empty or no array");
  std::vector<ChatMessage> messages;
  for (std::size_t i = 0; i < array->size(); ++i) {
    const std::string path = fmt::format("messages[{}]", i);
    const JsonFields fields((*array)[i], path);
    const std::string role = fields.text("role").value_or("");
    const Json* content = fields.find("content");
    if (role != "user" && role != "assistant") fields.fail("role", "is '" + role + "', expected user or assistant");
    if (content == nullptr || !(content->is_string() || content->is_array()))
      fields.fail("content", "expected a text or blocks");
    if (content->is_string()) {
      messages.push_back(ChatMessage::of(role == "user" ? Role::kUser : Role::kAssistant, content->get<std::string>()));
    } else if (role == "user") {
      read_user_blocks(*content, path + ".content", messages);
    } else {
      messages.push_back(read_assistant_blocks(*content, path + ".content"));
    }
  }
  return messages;
}

std::vector<ToolDefinition> read_tools(const JsonFields& body) {
  const Json* tools = body.find("tools");
  if (tools == nullptr) return {};
  if (!tools->is_array()) body.fail("tools", "expected an array");
  Json openai = Json::array();
  for (std::size_t i = 0; i < tools->size(); ++i) {
    const JsonFields tool((*tools)[i], fmt::format("tools[{}]", i));
    if (tool.text("name").value_or("").empty()) tool.fail("name", "is missing");
    if (!tool.has("input_schema"))
      tool.fail("input_schema", "is missing; tools that run on a server are not supported");
    Json function = {{"name", tool.text("name").value_or("")}};
    if (const auto description = tool.text("description")) function["description"] = *description;
    function["parameters"] = *tool.find("input_schema");
    openai.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  return tools_from_json(openai);
}

ToolChoice read_tool_choice(const JsonFields& body) {
  ToolChoice choice;
  const auto fields = body.object("tool_choice");
  if (!fields) return choice;
  const std::string type = fields->text("type").value_or("");
  choice.parallel = !fields->boolean("disable_parallel_tool_use").value_or(false);
  if (type == "any") {
    choice.kind = ToolChoice::Kind::kRequired;
  } else if (type == "none") {
    choice.kind = ToolChoice::Kind::kNone;
  } else if (type == "tool") {
    choice.kind = ToolChoice::Kind::kNamed;
    choice.name = fields->text("name").value_or("");
  } else if (type != "auto") {
    fields->fail("type", "is '" + type + "', expected auto, any, tool or none");
  }
  return choice;
}

const char* stop_reason(const Finished& finished, const ChatReply& reply) {
  if (finished.reason == FinishReason::kLength) return "max_tokens";
  if (finished.matched_stop) return "stop_sequence";
  return reply.has_tool_calls() ? "tool_use" : "end_turn";
}

Json usage(const Finished& finished) {
  return {{"input_tokens", finished.prompt_tokens - finished.cache.cached_tokens},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", finished.cache.cached_tokens},
          {"output_tokens", finished.generated_tokens}};
}

Json or_null(const std::optional<std::string>& text) {
  return text ? Json(*text) : Json();
}

}  // namespace

AnthropicRequest parse_anthropic(const Json& json, bool keep_billing_header, bool counting_only) {
  const JsonFields body(json);
  AnthropicRequest request;
  ChatRequest& chat = request.chat;
  for (const char* name : {"mcp_servers", "container"}) {
    if (const Json* value = body.find(name); value != nullptr && !value->empty()) body.fail(name, "is not supported");
  }
  chat.messages = read_messages(body);
  if (const Json* system = body.find("system")) {
    const std::string text = system_text(*system, keep_billing_header);
    if (!text.empty()) chat.messages.insert(chat.messages.begin(), ChatMessage::of(Role::kSystem, text));
  }
  chat.tools = read_tools(body);
  chat.tool_choice = read_tool_choice(body);
  chat.format.enable_thinking = false;
  if (const auto thinking = body.object("thinking")) {
    const std::string type = thinking->text("type").value_or("");
    if (type != "enabled" && type != "adaptive" && type != "disabled") {
      thinking->fail("type", "is '" + type + "', expected enabled, adaptive or disabled");
    }
    chat.format.enable_thinking = type != "disabled";
  }
  GenerationOptions& generation = chat.generation;
  generation.sampling = SamplingParams::defaults(chat.format.enable_thinking);
  if (const auto thinking = body.object("thinking")) {
    if (const auto budget = thinking->integer("budget_tokens", 0, std::int64_t{1} << 40))
      generation.thinking_budget = *budget;
  }
  const auto max_tokens = body.integer("max_tokens", 1, std::int64_t{1} << 40);
  if (!max_tokens && !counting_only) body.fail("max_tokens", "is missing");
  generation.max_tokens = max_tokens.value_or(1);
  if (const auto value = body.number("temperature", 0, 100)) generation.sampling.temperature = *value;
  if (const auto value = body.number("top_p", 0, 1)) generation.sampling.top_p = *value;
  if (const auto value = body.integer("top_k", 0, std::numeric_limits<int>::max()))
    generation.sampling.top_k = static_cast<int>(*value);
  constexpr std::size_t kMostStops = 32;
  generation.stop = body.texts("stop_sequences", kMostStops);
  std::erase(generation.stop, "");
  request.stream = body.boolean("stream").value_or(false);
  return request;
}

AnthropicWriter::AnthropicWriter(const ChatReply& reply, std::string served_name)
    : id_("msg_" + random_call_id().substr(5)),
      served_name_(std::move(served_name)),
      prompt_tokens_(reply.prompt_tokens()) {}

std::string AnthropicWriter::opening() const {
  Json message = {{"id", id_},
                  {"type", "message"},
                  {"role", "assistant"},
                  {"model", served_name_},
                  {"content", Json::array()},
                  {"stop_reason", nullptr},
                  {"stop_sequence", nullptr}};
  message["usage"] = {{"input_tokens", prompt_tokens_}, {"output_tokens", 0}};
  return event("message_start", {{"message", std::move(message)}}) + event("ping", Json::object());
}

std::string AnthropicWriter::open(Block block, Json content) {
  if (block == block_ && block != Block::kToolUse) return {};
  std::string text = close();
  block_ = block;
  ++index_;
  return text + event("content_block_start", {{"index", index_}, {"content_block", std::move(content)}});
}

std::string AnthropicWriter::delta(Json content) const {
  return event("content_block_delta", {{"index", index_}, {"delta", std::move(content)}});
}

std::string AnthropicWriter::close() {
  if (block_ == Block::kNone) return {};
  std::string text;
  if (block_ == Block::kThinking) text = delta({{"type", "signature_delta"}, {"signature", "lily"}});
  block_ = Block::kNone;
  return text + event("content_block_stop", {{"index", index_}});
}

std::string AnthropicWriter::events(const ReplyStep& step, const ChatReply& reply) {
  std::string text;
  for (const ReplyEvent& part : step.events) {
    switch (part.kind) {
      case ReplyEvent::Kind::kReasoning:
        text += open(Block::kThinking, {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
        text += delta({{"type", "thinking_delta"}, {"thinking", part.text}});
        break;
      case ReplyEvent::Kind::kContent:
        text += open(Block::kText, {{"type", "text"}, {"text", ""}});
        text += delta({{"type", "text_delta"}, {"text", part.text}});
        break;
      case ReplyEvent::Kind::kToolCall:
        text += open(Block::kToolUse,
                     {{"type", "tool_use"}, {"id", part.id}, {"name", part.name}, {"input", Json::object()}});
        break;
      case ReplyEvent::Kind::kToolArguments:
        text += delta({{"type", "input_json_delta"}, {"partial_json", part.text}});
        break;
      case ReplyEvent::Kind::kToolCallEnd:
        text += close();
        break;
    }
  }
  if (!step.finished) return text;
  text += close();
  const Finished& finished = *step.finished;
  Json ending = {{"stop_reason", stop_reason(finished, reply)}, {"stop_sequence", or_null(finished.matched_stop)}};
  text += event("message_delta", {{"delta", std::move(ending)}, {"usage", usage(finished)}});
  return text + event("message_stop", Json::object());
}

Json AnthropicWriter::whole(const Finished& finished, const ChatReply& reply) const {
  const ChatMessage& said = reply.message();
  Json content = Json::array();
  if (said.reasoning_content && !said.reasoning_content->empty()) {
    content.push_back({{"type", "thinking"}, {"thinking", *said.reasoning_content}, {"signature", "lily"}});
  }
  if (const std::string text = said.text(); !text.empty()) content.push_back({{"type", "text"}, {"text", text}});
  for (const ToolCall& call : said.tool_calls) {
    Json input = Json::object();
    if (is_modest_json(call.arguments)) {
      input = Json::parse(call.arguments, nullptr, /*allow_exceptions=*/false);
      if (!input.is_object()) input = Json::object();
    }
    content.push_back({{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", std::move(input)}});
  }
  return {{"id", id_},
          {"type", "message"},
          {"role", "assistant"},
          {"model", served_name_},
          {"content", std::move(content)},
          {"stop_reason", stop_reason(finished, reply)},
          {"stop_sequence", or_null(finished.matched_stop)},
          {"usage", usage(finished)}};
}

}  // namespace lily
