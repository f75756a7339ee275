#include "text/tool_call_parser.h"

#include <algorithm>

#include "text/tool_call_json.h"

namespace lily {
namespace {

constexpr std::string_view kCall = "<tool_call>";
constexpr std::string_view kCallEnd = "</tool_call>";
constexpr std::string_view kFunction = "<function=";
constexpr std::string_view kFunctionEnd = "</function>";
constexpr std::string_view kParameter = "<parameter=";
constexpr std::string_view kParameterEnd = "</parameter>";

bool is_identifier(std::string_view name) {
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  });
}

}  // namespace

ToolCallParser::Status ToolCallParser::advance(ReplyBuffer& buffer, std::string& json) {
  Step step = Step::kOn;
  while (step == Step::kOn) step = in_value_ ? value(buffer, json) : between(buffer, json);
  return step == Step::kDone ? Status::kDone : Status::kWaits;
}

ToolCallParser::Step ToolCallParser::between(ReplyBuffer& buffer, std::string& json) {
  if (buffer.empty()) return buffer.ended() ? finish(false, json) : Step::kWaits;
  if (const std::string_view token = buffer.control_at(0); !token.empty()) {
    if (token == kCall) return finish(true, json);
    const bool is_end = token == kCallEnd;
    junk_ += buffer.take(token.size());
    return is_end ? finish(true, json) : Step::kOn;
  }
  if (buffer.text_at(0) != '<') {
    junk_ += buffer.take(buffer.run("<"));
    return Step::kOn;
  }
  std::string name;
  const Scan parameter = Scan(buffer, 0).tag(kParameter, name);
  if (parameter.matched()) {
    buffer.take(parameter.offset());
    begin_value(name, json);
    return Step::kOn;
  }
  const Scan end = Scan(buffer, 0).text(kFunctionEnd);
  if (end.matched()) {
    buffer.take(end.offset());
    return finish(true, json);
  }
  const Scan next_function = Scan(buffer, 0).text(kFunction);
  if (next_function.matched()) return finish(true, json);
  if (either(parameter.match(), either(end.match(), next_function.match())) == Match::kUnknown) return Step::kWaits;
  junk_ += buffer.take(1);
  return Step::kOn;
}

ToolCallParser::Step ToolCallParser::value(ReplyBuffer& buffer, std::string& json) {
  if (at_begin_ && !buffer.empty()) {
    if (buffer.text_at(0) == '\n') buffer.take(1);
    at_begin_ = false;
  }
  add_to_value(buffer.take(buffer.run("\n<")), json);
  if (buffer.empty() && !buffer.ended()) return Step::kWaits;
  const ValueEnd end = value_end(buffer);
  if (end.match == Match::kUnknown) return Step::kWaits;
  if (end.match == Match::kYes) {
    buffer.take(end.size);
    end_value(json);
  } else {
    add_to_value(buffer.take(std::max<std::size_t>(buffer.control_at(0).size(), 1)), json);
  }
  return Step::kOn;
}

// Does the value end here, at a line break, a '<', a control token or the end of the reply?
ToolCallParser::ValueEnd ToolCallParser::value_end(const ReplyBuffer& buffer) const {
  const std::size_t at = buffer.text_at(0) == '\n' ? 1 : 0;
  std::string name;
  const auto call = [&](std::size_t offset) {
    return Scan(buffer, offset).control(kCall).space().tag(kFunction, name).match();
  };
  // What may come after a closed function, or in place of its end.
  const auto after_function = [&](std::size_t offset) {
    return either(Scan(buffer, offset).end_of_reply().match(), call(offset));
  };

  Scan closed = Scan(buffer, at).text(kParameterEnd);
  const std::size_t closed_size = closed.offset();
  const std::size_t next = closed.space().offset();
  Match goes_on = after_function(next);
  for (const std::string_view tag : {kParameter, kFunctionEnd, kFunction}) {
    goes_on = either(goes_on, Scan(buffer, next).text(tag).match());
  }
  goes_on = either(goes_on, Scan(buffer, next).control(kCallEnd).match());
  if (closed.then(goes_on).matched()) return {Match::kYes, closed_size};

  // Without </parameter>.
  Scan function_end = Scan(buffer, at).text(kFunctionEnd).space();
  const std::size_t end = function_end.offset();
  function_end.then(either(either(after_function(end), Scan(buffer, end).control(kCallEnd).match()),
                           Scan(buffer, end).text(kFunction).match()));
  Scan call_end = Scan(buffer, at).control(kCallEnd).space();
  call_end.then(after_function(call_end.offset()));
  Match unclosed = either(either(function_end.match(), call_end.match()), call(at));
  if (at == 1 || is_empty_) {
    Scan parameter = Scan(buffer, at).tag(kParameter, name);
    if (parameter.matched()) parameter.then(may_be_next_parameter(name) ? Match::kYes : Match::kNo);
    unclosed = either(unclosed, parameter.match());
  }
  if (unclosed == Match::kYes) return {Match::kYes, at};
  if (buffer.ended()) return cut_off_end(buffer);
  return {either(closed.match(), unclosed), 0};
}

// At the end of the reply: a line break, or the beginning of a tag, is what is left of the value's own end.
ToolCallParser::ValueEnd ToolCallParser::cut_off_end(const ReplyBuffer& buffer) const {
  const std::size_t at = buffer.text_at(0) == '\n' ? 1 : 0;
  const std::string_view rest = buffer.text().substr(at);
  bool is_end = rest.empty();
  if (buffer.control_at(at).empty() && rest.size() >= (at == 1 ? 1 : 2)) {
    for (const std::string_view tag : {kParameterEnd, kFunctionEnd, kParameter}) is_end |= tag.starts_with(rest);
  }
  return {is_end ? Match::kYes : Match::kNo, buffer.size()};
}

bool ToolCallParser::may_be_next_parameter(std::string_view name) const {
  if (names_.find(name) != names_.end()) return false;
  return tool_ != nullptr && !tool_->parameters.empty() ? tool_->has_parameter(name) : is_identifier(name);
}

void ToolCallParser::begin_value(const std::string& name, std::string& json) {
  in_value_ = true;
  at_begin_ = true;
  is_empty_ = true;
  is_string_ = false;
  text_.clear();
  types_ = tool_ != nullptr ? tool_->types(name) : ParameterTypes();
  key_.assign(1, names_.empty() ? '{' : ',');
  key_ += json_quoted(name);
  key_ += ':';
  is_repeated_ = !names_.insert(name).second;
  if (!is_repeated_ && types_.is_string({})) {
    is_string_ = true;
    json += key_ + '"';
  }
}

void ToolCallParser::add_to_value(std::string_view text, std::string& json) {
  if (text.empty()) return;
  is_empty_ = false;
  if (is_repeated_) return;
  if (is_string_) {
    json += json_escaped(text);
    return;
  }
  text_ += text;
  if (types_.is_string(text_)) {
    is_string_ = true;
    json += key_ + '"' + json_escaped(text_);
  }
}

void ToolCallParser::end_value(std::string& json) {
  in_value_ = false;
  if (is_repeated_) return;
  json += is_string_ ? "\"" : key_ + types_.to_json(text_);
}

ToolCallParser::Step ToolCallParser::finish(bool complete, std::string& json) {
  complete_ = complete;
  const std::string_view body = trim_json_space(junk_);
  if (!names_.empty()) {
    json += '}';
  } else if (body.starts_with('{') && is_json(body)) {
    json += body;  // the arguments were written as JSON
  } else {
    json += "{}";
  }
  return Step::kDone;
}

}  // namespace lily
