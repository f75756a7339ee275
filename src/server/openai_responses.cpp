#include "server/openai_responses.h"

#include <fmt/format.h>

#include <chrono>

#include "server/usage.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

std::string new_id(const char* prefix) {
  return prefix + random_call_id().substr(5);
}

Json text_part(bool reasoning, const std::string& text, const Json& logprobs) {
  if (reasoning) return {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", logprobs}};
}

}  // namespace

OpenAiResponsesWriter::OpenAiResponsesWriter(const OpenAiResponsesRequest& request, const LoadedModel& model,
                                             std::string served_name)
    : model_(model), logprobs_(request.logprobs) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  response_ = {{"id", new_id("resp_")},
               {"object", "response"},
               {"created_at", std::chrono::duration_cast<std::chrono::seconds>(now).count()},
               {"status", "in_progress"},
               {"error", nullptr},
               {"incomplete_details", nullptr},
               {"model", std::move(served_name)},
               {"output", Json::array()},
               {"usage", nullptr}};
  response_.update(request.echoed);
}

std::string OpenAiResponsesWriter::event(const char* type, Json fields) {
  Json json = {{"type", type}, {"sequence_number", sequence_number_++}};
  json.update(fields);
  return fmt::format("event: {}\ndata: {}\n\n", type, json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

/// An event about the open item.
std::string OpenAiResponsesWriter::item_event(const char* type, Json fields) {
  Json about = {{"item_id", item_["id"]}, {"output_index", response_["output"].size()}};
  about.update(fields);
  return event(type, std::move(about));
}

std::string OpenAiResponsesWriter::opening() {
  std::string events = event("response.created", {{"response", response_}});  // the events are numbered in this order
  return events += event("response.in_progress", {{"response", response_}});
}

/// What is open is closed first.
std::string OpenAiResponsesWriter::open(Item kind, Json item) {
  std::string text = close("completed");
  open_ = kind;
  item_ = std::move(item);
  text_.clear();
  item_logprobs_ = Json::array();
  return text + event("response.output_item.added", {{"output_index", response_["output"].size()}, {"item", item_}});
}

std::string OpenAiResponsesWriter::open_text(Item kind) {
  if (open_ == kind) return {};
  const bool reasoning = kind == Item::kReasoning;
  Json item = {{"id", new_id(reasoning ? "rs_" : "msg_")}, {"type", reasoning ? "reasoning" : "message"}};
  if (reasoning) {
    item["summary"] = Json::array();
  } else {
    item["role"] = "assistant";
  }
  item["status"] = "in_progress";
  item["content"] = Json::array();
  std::string text = open(kind, std::move(item));
  Json part = text_part(reasoning, "", Json::array());
  return text + item_event("response.content_part.added", {{"content_index", 0}, {"part", std::move(part)}});
}

std::string OpenAiResponsesWriter::text_delta(Item kind, const std::string& text) {
  std::string events = open_text(kind);
  text_ += text;
  Json delta = {{"content_index", 0}, {"delta", text}};
  if (kind == Item::kReasoning) return events + item_event("response.reasoning_text.delta", std::move(delta));
  delta["logprobs"] = take_logprobs();
  return events + item_event("response.output_text.delta", std::move(delta));
}

Json OpenAiResponsesWriter::take_logprobs() {
  Json taken = std::move(pending_logprobs_);
  pending_logprobs_ = Json::array();
  for (const Json& entry : taken) item_logprobs_.push_back(entry);
  return taken;
}

std::string OpenAiResponsesWriter::close_text() {
  const bool reasoning = open_ == Item::kReasoning;
  Json done = {{"content_index", 0}, {"text", text_}};
  if (!reasoning) done["logprobs"] = item_logprobs_;
  const Json part = text_part(reasoning, text_, item_logprobs_);
  item_["content"] = Json::array({part});
  std::string events =
      item_event(reasoning ? "response.reasoning_text.done" : "response.output_text.done", std::move(done));
  return events += item_event("response.content_part.done", {{"content_index", 0}, {"part", part}});
}

/// The open item becomes part of the output.
std::string OpenAiResponsesWriter::close(const char* status) {
  if (open_ == Item::kNone) return {};
  std::string text;
  if (open_ == Item::kFunctionCall) {
    item_["arguments"] = text_;
    text = item_event("response.function_call_arguments.done", {{"name", item_["name"]}, {"arguments", text_}});
  } else {
    text = close_text();
  }
  open_ = Item::kNone;
  item_["status"] = status;
  text += event("response.output_item.done", {{"output_index", response_["output"].size()}, {"item", item_}});
  response_["output"].push_back(std::move(item_));
  return text;
}

std::string OpenAiResponsesWriter::say(const ReplyEvent& part) {
  switch (part.kind) {
    case ReplyEvent::Kind::kReasoning:
      return text_delta(Item::kReasoning, part.text);
    case ReplyEvent::Kind::kContent:
      return text_delta(Item::kMessage, part.text);
    case ReplyEvent::Kind::kToolCall:
      return open(Item::kFunctionCall, {{"id", new_id("fc_")},
                                        {"type", "function_call"},
                                        {"status", "in_progress"},
                                        {"call_id", part.id},
                                        {"name", part.name},
                                        {"arguments", ""}});
    case ReplyEvent::Kind::kToolArguments:
      text_ += part.text;
      return item_event("response.function_call_arguments.delta", {{"delta", part.text}});
    case ReplyEvent::Kind::kToolCallEnd:
      return close(part.complete ? "completed" : "incomplete");
  }
  return {};
}

std::string OpenAiResponsesWriter::events(const ReplyStep& step) {
  if (step.token && step.in_reasoning) {
    ++reasoning_tokens_;
  } else if (step.token && logprobs_ && !step.is_end) {
    pending_logprobs_.push_back(token_logprob(*step.token, model_.tokenizer()));
  }
  std::string text;
  for (const ReplyEvent& part : step.events) text += say(part);
  return step.finished ? text + end(*step.finished) : text;
}

std::string OpenAiResponsesWriter::end(const Finished& finished) {
  const bool cut = finished.reason == FinishReason::kLength;
  std::string text = close(cut ? "incomplete" : "completed");
  response_["status"] = cut ? "incomplete" : "completed";
  if (cut) response_["incomplete_details"] = {{"reason", "max_output_tokens"}};
  response_["usage"] = {
      {"input_tokens", finished.prompt_tokens},
      {"input_tokens_details", {{"cached_tokens", finished.cache.cached_tokens}, {"cache_write_tokens", 0}}},
      {"output_tokens", finished.generated_tokens},
      {"output_tokens_details", {{"reasoning_tokens", reasoning_tokens_}}},
      {"total_tokens", finished.prompt_tokens + finished.generated_tokens}};
  response_["timings"] = timings(finished, model_.tokenizer());
  return text + event(cut ? "response.incomplete" : "response.completed", {{"response", response_}});
}

std::string OpenAiResponsesWriter::failure(const ApiError& error) {
  std::string text = close("incomplete");
  response_["status"] = "failed";
  response_["error"] = {{"code", "server_error"}, {"message", error.what()}};
  return text + event("response.failed", {{"response", response_}});
}

}  // namespace lily
