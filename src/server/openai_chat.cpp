#include "server/openai_chat.h"

#include <chrono>

#include "server/generation_fields.h"
#include "server/json_fields.h"
#include "server/usage.h"
#include "text/chat_format_json.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

/// What OpenAI has and lily has not: refused, since ignoring it would give another answer than was asked for.
void refuse_unsupported(const JsonFields& body) {
  if (const auto n = body.integer("n", 1, 128); n && *n != 1) body.fail("n", "above 1 is not supported");
  for (const char* name : {"audio", "functions", "function_call", "web_search_options", "prediction"}) {
    if (body.has(name)) body.fail(name, "is not supported");
  }
  if (const Json* modalities = body.find("modalities"); modalities != nullptr && *modalities != Json{"text"}) {
    body.fail("modalities", "other than [\"text\"] are not supported");
  }
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
  } else if (value->is_object()) {
    const JsonFields fields(*value, "tool_choice");
    const auto function = fields.object("function");
    const auto name = function ? function->text("name") : fields.text("name");
    if (!name) body.fail("tool_choice", "is an object without function.name");
    choice.kind = ToolChoice::Kind::kNamed;
    choice.name = *name;
  } else {
    body.fail("tool_choice",
              "expected 'none', 'auto', 'required' or {\"type\": \"function\", \"function\": {\"name\": ...}}");
  }
  return choice;
}

ResponseFormat read_response_format(const JsonFields& body) {
  ResponseFormat format;
  const auto fields = body.object("response_format");
  if (!fields) return format;
  const std::string type = fields->text("type").value_or("");
  if (type == "json_object") {
    format.kind = ResponseFormat::Kind::kJsonObject;
  } else if (type == "json_schema") {
    const auto wrapper = fields->object("json_schema");
    if (!wrapper || !wrapper->has("schema")) fields->fail("json_schema", "has no schema");
    format.kind = ResponseFormat::Kind::kJsonSchema;
    format.schema = read_schema(*wrapper, "schema");
  } else if (type != "text") {
    fields->fail("type", "is '" + type + "', expected text, json_object or json_schema");
  }
  return format;
}

template <typename Read>
auto named(const char* param, Read read) {
  try {
    return read();
  } catch (const ApiError&) {
    throw;
  } catch (const Error& error) {
    throw ApiError({}, error.what(), param);
  }
}

}  // namespace

OpenAiChatRequest parse_openai_chat(const Json& json) {
  const JsonFields body(json);
  OpenAiChatRequest request;
  refuse_unsupported(body);
  const Json* messages = body.find("messages");
  if (messages == nullptr) body.fail("messages", "is missing");
  if (messages->is_array() && messages->empty()) body.fail("messages", "is empty");
  request.chat.messages = named("messages", [&] { return chat_messages_from_json(*messages); });
  if (const Json* tools = body.find("tools")) {
    request.chat.tools = named("tools", [&] { return tools_from_json(*tools); });
    for (const ToolDefinition& tool : request.chat.tools) {
      if (tool.name.empty()) body.fail("tools", "has one without a function's name; only functions are supported");
    }
  }
  request.chat.tool_choice = read_tool_choice(body);
  request.chat.response_format = read_response_format(body);
  read_thinking(body, request.chat.format);
  request.chat.generation = read_generation(body, request.chat.format.enable_thinking);
  request.logprobs = body.boolean("logprobs").value_or(false);
  const auto top_logprobs = body.integer("top_logprobs", 0, 20);
  if (top_logprobs && !request.logprobs) body.fail("top_logprobs", "needs logprobs to be true");
  if (request.logprobs) request.chat.generation.top_logprobs = static_cast<int>(top_logprobs.value_or(0));
  request.stream = body.boolean("stream").value_or(false);
  if (const auto options = body.object("stream_options")) {
    if (!request.stream) body.fail("stream_options", "needs stream to be true");
    request.include_usage = options->boolean("include_usage").value_or(false);
  }
  return request;
}

std::string openai_finish_reason(const Finished& finished, const ChatReply& reply) {
  if (finished.reason == FinishReason::kLength) return "length";
  return reply.has_tool_calls() ? "tool_calls" : "stop";
}

OpenAiChatWriter::OpenAiChatWriter(const OpenAiChatRequest& request, const LoadedModel& model, std::string served_name)
    : model_(model),
      id_("chatcmpl-" + random_call_id().substr(5)),
      served_name_(std::move(served_name)),
      created_(std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
                   .count()),
      include_usage_(request.include_usage),
      logprobs_(request.logprobs) {}

Json OpenAiChatWriter::envelope(const char* object) const {
  return {
      {"id", id_}, {"object", object}, {"created", created_}, {"model", served_name_}, {"system_fingerprint", "lily"}};
}

Json OpenAiChatWriter::chunk(Json delta) {
  Json result = envelope("chat.completion.chunk");
  Json choice = {{"index", 0}, {"delta", std::move(delta)}, {"logprobs", take_logprobs()}, {"finish_reason", nullptr}};
  result["choices"] = Json::array({std::move(choice)});
  if (include_usage_) result["usage"] = nullptr;
  return result;
}

Json OpenAiChatWriter::opening() {
  return chunk({{"role", "assistant"}, {"content", ""}});
}

void OpenAiChatWriter::count(const ReplyStep& step) {
  if (!step.token) return;
  if (step.in_reasoning) {
    ++reasoning_tokens_;
  } else if (logprobs_ && !step.is_end) {
    pending_logprobs_.push_back(token_logprob(*step.token, model_.tokenizer()));
  }
}

Json OpenAiChatWriter::take_logprobs() {
  if (pending_logprobs_.empty()) return nullptr;
  Json result = {{"content", std::move(pending_logprobs_)}, {"refusal", nullptr}};
  pending_logprobs_ = Json::array();
  return result;
}

std::vector<Json> OpenAiChatWriter::chunks(const ReplyStep& step, const ChatReply& reply) {
  std::vector<Json> result;
  count(step);
  for (const ReplyEvent& event : step.events) {
    switch (event.kind) {
      case ReplyEvent::Kind::kReasoning:
        result.push_back(chunk({{"reasoning_content", event.text}}));
        break;
      case ReplyEvent::Kind::kContent:
        result.push_back(chunk({{"content", event.text}}));
        break;
      case ReplyEvent::Kind::kToolCall: {
        Json call = {{"index", event.index}, {"id", event.id}, {"type", "function"}};
        call["function"] = {{"name", event.name}, {"arguments", ""}};
        result.push_back(chunk({{"tool_calls", Json::array({std::move(call)})}}));
        break;
      }
      case ReplyEvent::Kind::kToolArguments: {
        Json call = {{"index", event.index}, {"function", {{"arguments", event.text}}}};
        result.push_back(chunk({{"tool_calls", Json::array({std::move(call)})}}));
        break;
      }
      case ReplyEvent::Kind::kToolCallEnd:
        break;
    }
  }
  if (!step.finished) return result;
  Json last = chunk(Json::object());
  last["choices"][0]["finish_reason"] = openai_finish_reason(*step.finished, reply);
  if (!include_usage_) last["timings"] = timings(*step.finished, model_.tokenizer());
  result.push_back(std::move(last));
  if (include_usage_) {
    Json usage = envelope("chat.completion.chunk");
    usage["choices"] = Json::array();
    usage["usage"] = openai_usage(*step.finished, reasoning_tokens_);
    usage["timings"] = timings(*step.finished, model_.tokenizer());
    result.push_back(std::move(usage));
  }
  return result;
}

void OpenAiChatWriter::add(const ReplyStep& step) {
  count(step);
}

Json OpenAiChatWriter::whole(const Finished& finished, const ChatReply& reply) {
  const ChatMessage& said = reply.message();
  Json message = {{"role", "assistant"}, {"content", said.text()}, {"refusal", nullptr}};
  if (said.reasoning_content) message["reasoning_content"] = *said.reasoning_content;
  if (!said.tool_calls.empty()) {
    if (said.text().empty()) message["content"] = nullptr;
    Json calls = Json::array();
    for (const ToolCall& call : said.tool_calls) {
      calls.push_back(
          {{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
    }
    message["tool_calls"] = std::move(calls);
  }
  Json result = envelope("chat.completion");
  Json choice = {{"index", 0}, {"message", std::move(message)}, {"logprobs", take_logprobs()}};
  choice["finish_reason"] = openai_finish_reason(finished, reply);
  result["choices"] = Json::array({std::move(choice)});
  result["usage"] = openai_usage(finished, reasoning_tokens_);
  result["timings"] = timings(finished, model_.tokenizer());
  return result;
}

}  // namespace lily
