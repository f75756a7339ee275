#include "text/reply_parser.h"

#include <random>
#include <utility>

#include "support/error.h"

namespace lily {
namespace {

constexpr std::string_view kThink = "<think>";
constexpr std::string_view kThinkEnd = "</think>";
constexpr std::string_view kCall = "<tool_call>";
constexpr std::string_view kCallEnd = "</tool_call>";
constexpr std::string_view kFunction = "<function=";

}  // namespace

std::string random_call_id() {
  constexpr std::string_view kLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::random_device random;
  std::uniform_int_distribution<std::size_t> letter(0, kLetters.size() - 1);
  std::string id = "call_";
  for (int i = 0; i < 24; ++i) id += kLetters[letter(random)];
  return id;
}

ReplyParser::ReplyParser(std::span<const ToolDefinition> tools, ReplyParserOptions options)
    : tools_(tools), options_(std::move(options)), in_reasoning_(options_.in_reasoning) {}

std::vector<ReplyEvent> ReplyParser::push(std::string_view text, bool control) {
  if (buffer_.ended()) return {};
  if (control && (text == "<|im_end|>" || text == "<|endoftext|>")) return finish();
  if (control) {
    append_control(raw_, text);
  } else {
    append_text(raw_, text);
  }
  buffer_.push(text, control);
  process();
  return std::exchange(events_, {});
}

std::vector<ReplyEvent> ReplyParser::finish() {
  if (buffer_.ended()) return {};
  buffer_.end();
  process();
  if (section_begun_ && held_line_breaks_ > 0) emit_text({});
  return std::exchange(events_, {});
}

void ReplyParser::process() {
  while (!buffer_.empty() || (buffer_.ended() && call_)) {
    if (call_) {
      if (!advance_call()) return;
    } else if (!step()) {
      return;
    }
  }
}

// Reads on in reasoning or content; false: more of the reply is needed.
bool ReplyParser::step() {
  if (!buffer_.control_at(0).empty()) return control_step();
  if (buffer_.text_at(0) == '\n') {
    buffer_.take(1);
    ++held_line_breaks_;
    return true;
  }
  if (options_.parse_tool_calls && !in_reasoning_ && at_line_start()) {
    std::string name;
    const Scan call = Scan(buffer_, 0).tag(kFunction, name);
    if (call.match() == Match::kUnknown) return false;
    if (call.matched() && find_tool(name) != nullptr) {
      buffer_.take(call.offset());
      begin_call(name);
      return true;
    }
  }
  emit_text(buffer_.take(buffer_.run("\n")));
  return true;
}

bool ReplyParser::control_step() {
  const std::string token(buffer_.control_at(0));
  if (token == kCall && options_.parse_tool_calls) {
    std::string name;
    const Scan call = Scan(buffer_, 0).control(kCall).space().tag(kFunction, name);
    if (call.match() == Match::kUnknown) return false;
    if (call.matched() && (!in_reasoning_ || find_tool(name) != nullptr)) {
      buffer_.take(call.offset());
      begin_call(name);
      return true;
    }
  }
  buffer_.take(token.size());
  if (token == kThinkEnd && in_reasoning_) {
    in_reasoning_ = false;
    begin_section();
  } else if (token == kThink && !section_begun_) {
    in_reasoning_ = true;
    begin_section();
  } else if ((token == kThinkEnd || token == kCallEnd) && !section_begun_ && !in_reasoning_) {
    begin_section();
  } else {
    emit_text(token);
  }
  return true;
}

void ReplyParser::begin_call(const std::string& name) {
  in_reasoning_ = false;
  begin_section();
  ReplyEvent event;
  event.kind = ReplyEvent::Kind::kToolCall;
  event.index = num_calls_++;
  event.id = options_.make_call_id();
  event.name = name;
  events_.push_back(std::move(event));
  call_.emplace(find_tool(name));
}

// Reads on in a call; false: more of the reply is needed.
bool ReplyParser::advance_call() {
  std::string json;
  const bool done = call_->advance(buffer_, json) == ToolCallParser::Status::kDone;
  if (!json.empty()) emit(ReplyEvent::Kind::kToolArguments, json);
  if (!done) return false;
  emit(ReplyEvent::Kind::kToolCallEnd, {});
  events_.back().complete = call_->complete();
  call_.reset();
  return true;
}

void ReplyParser::begin_section() {
  section_begun_ = false;
  held_line_breaks_ = 0;
}

void ReplyParser::emit_text(std::string_view text) {
  bool& has_text = in_reasoning_ ? has_reasoning_ : has_content_;
  std::string whole;
  if (section_begun_ || has_text) whole.assign(held_line_breaks_, '\n');
  whole += text;
  held_line_breaks_ = 0;
  section_begun_ = has_text = true;
  emit(in_reasoning_ ? ReplyEvent::Kind::kReasoning : ReplyEvent::Kind::kContent, whole);
}

void ReplyParser::emit(ReplyEvent::Kind kind, std::string_view text) {
  if (!events_.empty() && events_.back().kind == kind && kind != ReplyEvent::Kind::kToolCallEnd) {
    events_.back().text += text;
    return;
  }
  ReplyEvent event;
  event.kind = kind;
  event.text = text;
  event.index = num_calls_ == 0 ? 0 : num_calls_ - 1;
  events_.push_back(std::move(event));
}

const ToolDefinition* ReplyParser::find_tool(std::string_view name) const {
  for (const ToolDefinition& tool : tools_) {
    if (tool.name == name) return &tool;
  }
  return nullptr;
}

void apply(const ReplyEvent& event, ChatMessage& message) {
  switch (event.kind) {
    case ReplyEvent::Kind::kReasoning:
      if (!message.reasoning_content) message.reasoning_content.emplace();
      *message.reasoning_content += event.text;
      break;
    case ReplyEvent::Kind::kContent:
      if (message.content.empty()) message.content.emplace_back();
      message.content.back().text += event.text;
      break;
    case ReplyEvent::Kind::kToolCall:
      message.tool_calls.push_back({event.id, event.name, {}});
      break;
    case ReplyEvent::Kind::kToolArguments:
      LILY_CHECK(!message.tool_calls.empty());
      message.tool_calls.back().arguments += event.text;
      break;
    case ReplyEvent::Kind::kToolCallEnd:
      break;
  }
}

}  // namespace lily
