#include "chat/chat_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "chat/chat_file.h"
#include "chat/demo_tools.h"
#include "progress_line.h"
#include "support/error.h"
#include "terminal/line_editor.h"

namespace lily {
namespace {

constexpr int kMostToolRounds = 8;  // in one turn, so that a model cannot call tools for ever

double per_second(std::int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0.0;
}

/// Draws the progress of a prompt, once it takes longer than a moment.
class PromptProgress {
 public:
  void show(std::int64_t done, std::int64_t total) {
    constexpr auto kMoment = std::chrono::milliseconds(400);
    if (done < total && std::chrono::steady_clock::now() - begin_ > kMoment) line_.show_count(done, total, "tokens");
    if (done >= total) line_.clear();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  ProgressLine line_{"reading"};
};

}  // namespace

struct ChatProgram::Command {
  const char* name;
  const char* argument;
  const char* help;
  std::function<void(ChatProgram&, const std::string&)> action;
};

const std::vector<ChatProgram::Command>& ChatProgram::commands() {
  static const std::vector<Command> kAll = {
      {"/help", "", "this list", [](ChatProgram& chat, const std::string&) { chat.help(); }},
      {"/think", "", "let the model think before it answers",
       [](ChatProgram& chat, const std::string&) { chat.set_thinking(true); }},
      {"/nothink", "", "answer at once", [](ChatProgram& chat, const std::string&) { chat.set_thinking(false); }},
      {"/system", "TEXT", "set the system message; without TEXT there is none",
       [](ChatProgram& chat, const std::string& text) {
         chat.set_system(text);
         chat.view_.note(text.empty() ? "no system message" : "system message set");
       }},
      {"/tools", "off|demo|FILE.json", "tools that the model may call: none, a few that run here, or those of a file",
       [](ChatProgram& chat, const std::string& what) { chat.set_tools(what); }},
      {"/reset", "", "begin a new conversation", [](ChatProgram& chat, const std::string&) { chat.reset(); }},
      {"/save", "FILE", "write the conversation as JSON",
       [](ChatProgram& chat, const std::string& file) { chat.save(file); }},
      {"/load", "FILE", "go on with a conversation",
       [](ChatProgram& chat, const std::string& file) { chat.load(file); }},
      {"/stats", "", "tokens and speed so far", [](ChatProgram& chat, const std::string&) { chat.stats(); }},
      {"/quit", "", "leave; so do Ctrl-D and Ctrl-C twice",
       [](ChatProgram& chat, const std::string&) { chat.ended_ = true; }},
  };
  return kAll;
}

ChatProgram::ChatProgram(LoadedModel& model, const ChatProgramOptions& options, ChatInput& input, ChatView& view,
                         SignalFlags& signals)
    : model_(model),
      options_(options),
      input_(input),
      view_(view),
      signals_(signals),
      conversation_(model, options.context) {
  if (!options.load.empty()) load(options.load);
  if (options.tools != "off") set_tools(options.tools);
  if (!options.system.empty()) set_system(options.system);
}

bool ChatProgram::run() {
  while (!ended_ && turn()) {
  }
  return !failed_;
}

// One input and what comes of it; false: there are no more.
bool ChatProgram::turn() {
  std::string line;
  switch (input_.read("> ", line)) {
    case ChatInput::Result::kEnd:
      return false;
    case ChatInput::Result::kInterrupt:
      // What was typed is thrown away, and that is all that the key was for.
      interrupts_ = line.empty() ? interrupts_ + 1 : 1;
      if (interrupts_ >= 2) return false;
      view_.note("Ctrl-C once more, or Ctrl-D, leaves");
      return true;
    case ChatInput::Result::kInput:
      break;
  }
  interrupts_ = 0;
  std::string text = input_text(line);
  if (text.find_first_not_of(" \t\n") == std::string::npos) return true;
  guarded([&] { text == line&& text.front() == '/' ? command(text) : answer(std::move(text)); });
  return !signals_.terminated();
}

// Errors end what was asked for, not the conversation.
void ChatProgram::guarded(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    failed_ = true;
    view_.error(error.what(), error.hint());
  }
}

void ChatProgram::command(const std::string& line) {
  const std::size_t end = std::min(line.find_first_of(" \t\n"), line.size());
  const std::string name = line.substr(0, end);
  const std::size_t begin = std::min(line.find_first_not_of(" \t\n", end), line.size());
  const std::string argument = line.substr(begin, line.find_last_not_of(" \t\n") + 1 - begin);
  for (const Command& command : commands()) {
    if (name == command.name) return command.action(*this, argument);
  }
  throw Error(fmt::format("there is no command {}", name),
              "/help lists them; to send this as a message, put a space before it");
}

void ChatProgram::answer(std::string text) {
  std::vector<ChatMessage>& messages = conversation_.messages;
  const std::size_t before = messages.size();
  messages.push_back(ChatMessage::of(Role::kUser, std::move(text)));
  try {
    ReplyTotals totals;
    const ReplyResult last = rounds(totals);
    if (totals.replies == 0) messages.resize(before);
    show_end(last, totals);
  } catch (const Error&) {
    messages.resize(before);
    throw;
  }
}

// Replies until one calls no tools; the last one's result.
ReplyResult ChatProgram::rounds(ReplyTotals& totals) {
  for (int round = 1;; ++round) {
    ReplyResult result = reply();
    if (!result.started) return result;
    totals.add(result);
    totals_.add(result);
    const bool calls = !conversation_.messages.back().tool_calls.empty() && result.calls_are_complete;
    if (!calls || result.finish != FinishReason::kStop || !run_tools()) return result;
    if (round == kMostToolRounds) {
      view_.note(fmt::format("[{} rounds of tool calls are enough]", round));
      return result;
    }
  }
}

ReplyResult ChatProgram::reply() {
  signals_.clear_interrupt();
  const auto goes_on = [&] { return !signals_.interrupted() && !signals_.terminated(); };
  ReplyResult result;
  {
    PromptProgress progress;
    result = conversation_.reply({.thinking = options_.think,
                                  .preserve_thinking = options_.preserve_thinking,
                                  .sampling = options_.sampling.params(options_.think),
                                  .max_tokens = options_.max_tokens,
                                  .on_progress =
                                      [&](std::int64_t done, std::int64_t total) {
                                        progress.show(done, total);
                                        return goes_on();
                                      },
                                  .on_event = [&](const ReplyEvent& event) { view_.show(event); },
                                  .goes_on = goes_on});
  }
  view_.end_reply();
  signals_.clear_interrupt();
  return result;
}

void ChatProgram::show_end(const ReplyResult& last, const ReplyTotals& totals) {
  if (totals.replies == 0)
    return view_.note("[stopped before the answer; the message is not part of the conversation]");
  std::string why;
  if (last.finish == FinishReason::kCancelled) why = "stopped; ";
  if (last.finish == FinishReason::kLength) why = "cut off, no more tokens allowed; ";
  if (view_.is_terminal()) {
    view_.note(fmt::format("[{}{} tokens, {:.1f} tok/s; prompt {} tokens, {} of them new, {:.0f} tok/s]", why,
                           totals.generated_tokens, per_second(totals.generated_tokens, totals.decode_seconds),
                           totals.prompt_tokens, totals.computed_tokens,
                           per_second(totals.computed_tokens, totals.prefill_seconds)));
  } else if (!why.empty()) {
    view_.note(fmt::format("[{}{} tokens]", why, totals.generated_tokens));
  }
}

// Gives each call of the last message its result; false: the user would not.
bool ChatProgram::run_tools() {
  const std::vector<ToolCall> calls = conversation_.messages.back().tool_calls;
  std::vector<ChatMessage> results;
  for (const ToolCall& call : calls) {
    std::string result;
    if (tool_kind_ == ToolKind::kDemo) {
      result = run_demo_tool(call);
      view_.show_tool_result(result);
    } else {
      std::string line;
      if (input_.read(fmt::format("result of {}> ", visible(call.name)), line) != ChatInput::Result::kInput)
        return false;
      result = input_text(line);
    }
    ChatMessage message = ChatMessage::of(Role::kTool, std::move(result));
    message.tool_call_id = call.id;
    message.name = call.name;
    results.push_back(std::move(message));
  }
  std::move(results.begin(), results.end(), std::back_inserter(conversation_.messages));
  return true;
}

void ChatProgram::help() {
  std::string text;
  for (const Command& command : commands()) {
    text += fmt::format("{:<26} {}\n", fmt::format("{} {}", command.name, command.argument), command.help);
  }
  text +=
      "\nA backslash at the end of a line, or \"\"\" before and after several lines, makes them one message; so does "
      "a\n"
      "paste, and Alt-Enter breaks a line. Ctrl-C stops an answer.";
  view_.note(text);
}

void ChatProgram::set_thinking(bool thinking) {
  options_.think = thinking;
  view_.note(thinking ? "the model thinks before it answers" : "the model answers at once");
}

void ChatProgram::set_system(const std::string& text) {
  std::vector<ChatMessage>& messages = conversation_.messages;
  const auto is_system = [](const ChatMessage& message) {
    return message.role == Role::kSystem || message.role == Role::kDeveloper;
  };
  messages.erase(messages.begin(), std::find_if_not(messages.begin(), messages.end(), is_system));
  if (!text.empty()) messages.insert(messages.begin(), ChatMessage::of(Role::kSystem, text));
}

void ChatProgram::set_tools(const std::string& what) {
  if (what.empty()) throw Error("/tools needs off, demo or a file");
  if (what == "off") {
    conversation_.tools.clear();
    tool_kind_ = ToolKind::kOff;
  } else if (what == "demo") {
    conversation_.tools = demo_tools();
    tool_kind_ = ToolKind::kDemo;
  } else {
    conversation_.tools = load_tools(what);
    tool_kind_ = ToolKind::kFile;
  }
  std::string names;
  for (const ToolDefinition& tool : conversation_.tools) names += (names.empty() ? "" : ", ") + tool.name;
  view_.note(names.empty() ? "no tools" : "tools: " + names);
}

void ChatProgram::save(const std::string& file) {
  if (file.empty()) throw Error("/save needs the name of a file");
  if (conversation_.messages.empty() && std::filesystem::exists(file)) {
    throw Error(fmt::format("{} stays as it is: this conversation is empty", file), "give another name to save it");
  }
  save_chat(file, {conversation_.messages, conversation_.tools});
  view_.note(file + " written");
}

void ChatProgram::load(const std::string& file) {
  if (file.empty()) throw Error("/load needs the name of a file");
  ChatFile chat = load_chat(file);
  conversation_.messages = std::move(chat.messages);
  conversation_.tools = std::move(chat.tools);
  tool_kind_ = conversation_.tools.empty() ? ToolKind::kOff : ToolKind::kFile;
  view_.note(fmt::format("messages: {}", conversation_.messages.size()));
}

void ChatProgram::reset() {
  std::vector<ChatMessage>& messages = conversation_.messages;
  const bool has_system = !messages.empty() && messages.front().role == Role::kSystem;
  messages.resize(has_system ? 1 : 0);
  view_.note("a new conversation");
}

void ChatProgram::stats() {
  view_.note(
      fmt::format("{} messages; context {} of {} tokens\n{} replies: {} tokens at {:.1f} tok/s\n"
                  "prompts: {} tokens read at {:.0f} tok/s; what was known of them is not counted",
                  conversation_.messages.size(), conversation_.context_used(), conversation_.context(), totals_.replies,
                  totals_.generated_tokens, per_second(totals_.generated_tokens, totals_.decode_seconds),
                  totals_.computed_tokens, per_second(totals_.computed_tokens, totals_.prefill_seconds)));
}

void ReplyTotals::add(const ReplyResult& result) {
  ++replies;
  prompt_tokens = result.prompt_tokens;
  computed_tokens += result.prompt_tokens - result.reused_tokens;
  generated_tokens += result.generated_tokens;
  prefill_seconds += result.prefill_seconds;
  decode_seconds += result.decode_seconds;
}

}  // namespace lily
