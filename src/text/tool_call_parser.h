// The inside of one tool call, from after <function=NAME> to its end, as JSON that comes in fragments:
//
//   <parameter=city>\n          {"city":"
//   Paris\n                     Paris
//   </parameter>\n              "
//   <parameter=days>\n
//   2\n
//   </parameter>\n              ,"days":2
//   </function>\n</tool_call>   }
//
// A value is the raw text between the tags without one line break on each side; nothing in it is unescaped. Strings
// come as they are written; values of other types, which the tool's schema decides, at their end. A tag ends a value
// only where the format goes on after it, so that values may contain the tags as text; a missing </parameter>,
// </function> or
// </tool_call> is made up for by the next tag or the end of the reply. A call is never dropped for its arguments.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "text/reply_buffer.h"
#include "text/tool_call_schema.h"

namespace lily {

class ToolCallParser {
 public:
  enum class Status { kWaits, kDone };

  /// `tool`: the definition of the function, null when there is none. It must outlive the parser.
  explicit ToolCallParser(const ToolDefinition* tool) : tool_(tool) {}

  /// Takes what is certain from `buffer` and appends the JSON to `json`. When done, what follows is left in the buffer.
  Status advance(ReplyBuffer& buffer, std::string& json);
  /// Whether the end of the call was written, rather than the reply ended in it. Valid when done.
  bool complete() const { return complete_; }

 private:
  enum class Step { kOn, kWaits, kDone };
  struct ValueEnd {
    Match match;
    std::size_t size;  // of what belongs to the value's end and is skipped
  };

  Step between(ReplyBuffer& buffer, std::string& json);
  Step value(ReplyBuffer& buffer, std::string& json);
  ValueEnd value_end(const ReplyBuffer& buffer) const;
  ValueEnd cut_off_end(const ReplyBuffer& buffer) const;
  bool may_be_next_parameter(std::string_view name) const;
  void begin_value(const std::string& name, std::string& json);
  void add_to_value(std::string_view text, std::string& json);
  void end_value(std::string& json);
  Step finish(bool complete, std::string& json);

  const ToolDefinition* tool_;
  std::set<std::string, std::less<>> names_;  // parameters so far
  std::string junk_;                          // text between the tags
  bool complete_ = false;
  bool in_value_ = false;
  // Of the value in the making:
  ParameterTypes types_;
  std::string key_;   // what introduces it in the JSON
  std::string text_;  // while its type is open
  bool is_string_ = false;
  bool is_repeated_ = false;  // its name was given before: the first value counts
  bool at_begin_ = false;     // the line break after the tag may still come
  bool is_empty_ = false;
};

}  // namespace lily
