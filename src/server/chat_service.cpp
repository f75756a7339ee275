#include "server/chat_service.h"

#include <algorithm>

#include "sampling/grammar.h"
#include "server/api_error.h"
#include "support/error.h"

namespace lily {
namespace {

/// The tools that the prompt shows and the parser knows.
std::vector<ToolDefinition> usable_tools(const ChatRequest& request) {
  switch (request.tool_choice.kind) {
    case ToolChoice::Kind::kNone:
      return {};
    case ToolChoice::Kind::kAuto:
      return request.tools;
    case ToolChoice::Kind::kRequired:
      if (request.tools.empty()) throw bad_field("tool_choice", "is 'required', but there are no tools");
      return request.tools;
    case ToolChoice::Kind::kNamed:
      break;
  }
  const auto named = [&](const ToolDefinition& tool) { return tool.name == request.tool_choice.name; };
  if (std::none_of(request.tools.begin(), request.tools.end(), named)) {
    throw bad_field("tool_choice",
                    "names the function '" + request.tool_choice.name + "', which is not among the tools");
  }
  return request.tools;
}

/// The model writes a name between '=' and '>': what would end it there, or spans lines, could never be called.
void check_names(std::span<const ToolDefinition> tools) {
  for (const ToolDefinition& tool : tools) {
    const bool odd = std::any_of(tool.name.begin(), tool.name.end(),
                                 [](char c) { return (c >= 0 && c <= ' ') || c == '<' || c == '>' || c == 0x7f; });
    if (odd) throw bad_field("tools", "the name '" + tool.name + "' has a character that names cannot have");
  }
}

std::shared_ptr<TokenConstraint> constraint_of(const ChatRequest& request, GrammarCompiler& grammar) {
  const ToolChoice& choice = request.tool_choice;
  if (choice.kind == ToolChoice::Kind::kRequired) return grammar.tool_calls(request.tools, choice.parallel);
  if (choice.kind == ToolChoice::Kind::kNamed) {
    const auto named = std::find_if(request.tools.begin(), request.tools.end(),
                                    [&](const ToolDefinition& tool) { return tool.name == choice.name; });
    return grammar.tool_calls(std::span(&*named, 1), false);
  }
  const bool may_call = !request.tools.empty();
  switch (request.response_format.kind) {
    case ResponseFormat::Kind::kText:
      return may_call && !choice.parallel ? grammar.one_call_at_most() : nullptr;
    case ResponseFormat::Kind::kJsonObject:
      return grammar.json_object(may_call);
    case ResponseFormat::Kind::kJsonSchema:
      return grammar.json_schema(request.response_format.schema, may_call);
  }
  return nullptr;
}

void require_satisfiable(TokenConstraint& constraint) {
  const std::span<const std::uint32_t> allowed = constraint.allowed();
  const bool nothing = std::all_of(allowed.begin(), allowed.end(), [](std::uint32_t word) { return word == 0; });
  if (!allowed.empty() && nothing) throw bad_field("response_format", "the JSON schema allows no value at all");
}

}  // namespace

ChatReply::ChatReply(ChatRequest request, std::unique_ptr<Stream> stream, ReplayMemory& memory,
                     std::int64_t prompt_tokens)
    : request_(std::move(request)),
      stream_(std::move(stream)),
      memory_(memory),
      parser_(request_.tools,
              {.in_reasoning = request_.format.enable_thinking, .parse_tool_calls = !request_.tools.empty()}),
      prompt_tokens_(prompt_tokens) {
  message_.role = Role::kAssistant;
}

std::optional<ReplyStep> ChatReply::next(std::chrono::milliseconds timeout) {
  std::optional<StreamEvent> event = stream_->next(timeout);
  if (!event) return {};
  ReplyStep step;
  if (auto* token = std::get_if<GeneratedToken>(&*event)) {
    step.token = std::move(token->sampled);
    step.is_end = token->is_end;
    step.in_reasoning = parser_.in_reasoning();
    if (!token->text.empty()) take(parser_.push(token->text, false), step);
    if (!token->control.empty()) take(parser_.push(token->control, true), step);
  } else if (const auto* progress = std::get_if<PrefillProgress>(&*event)) {
    step.progress = *progress;
  } else if (auto* failed = std::get_if<Failed>(&*event)) {
    throw ApiError({.status = 500, .type = "server_error"}, failed->message);
  } else if (auto* finished = std::get_if<Finished>(&*event)) {
    take(parser_.finish(), step);
    // With a stop string the tokens say more than the client has got.
    if (finished->reason != FinishReason::kCancelled && !finished->matched_stop) remember(*finished);
    step.finished = std::move(*finished);
  }
  return step;
}

void ChatReply::take(std::vector<ReplyEvent> events, ReplyStep& step) {
  for (ReplyEvent& event : events) {
    apply(event, message_);
    step.events.push_back(std::move(event));
  }
}

void ChatReply::remember(const Finished& finished) {
  Pieces sampled = reply_opening(request_.format.enable_thinking);
  if (!finished.tokens.empty()) sampled.push_back({.text = plain_text(parser_.raw()), .tokens = finished.tokens});
  memory_.remember(request_.messages, message_, std::move(sampled));
}

ChatService::ChatService(LoadedModel& model, Engine& engine, std::size_t replay_bytes)
    : model_(model),
      engine_(engine),
      memory_(replay_bytes),
      grammar_(std::make_unique<GrammarCompiler>(model.tokenizer(), model.config().eos_token_ids)) {}

ChatService::~ChatService() = default;

ChatService::Prompt ChatService::encode(ChatRequest& request) {
  memory_.recall(request.messages);
  check_names(request.tools);
  request.tools = usable_tools(request);
  const RenderedChat chat = render_chat(request.messages, request.tools, request.format);
  if (chat.has_media) throw ApiError({}, "images and videos are not supported by this server; send text only");
  // Other requests will fork at these places, each followed by a control token: encoding part by part changes nothing.
  std::vector<std::size_t> cuts{chat.system_end, chat.last_query_begin, chat.last_query_end, chat.reply_begin};
  std::sort(cuts.begin(), cuts.end());
  cuts.push_back(chat.pieces.size());
  Prompt prompt;
  std::size_t begin = 0;
  for (const std::size_t end : cuts) {
    const Pieces part(chat.pieces.begin() + static_cast<std::ptrdiff_t>(begin),
                      chat.pieces.begin() + static_cast<std::ptrdiff_t>(end));
    const std::vector<std::int32_t> tokens = model_.tokenizer().encode(part);
    prompt.tokens.insert(prompt.tokens.end(), tokens.begin(), tokens.end());
    prompt.snapshots.push_back(static_cast<std::int64_t>(prompt.tokens.size()));
    begin = end;
  }
  return prompt;
}

std::vector<std::int32_t> ChatService::prompt(ChatRequest request) {
  return encode(request).tokens;
}

std::unique_ptr<ChatReply> ChatService::reply(ChatRequest request) {
  Prompt prompt = encode(request);
  request.generation.in_thinking = request.format.enable_thinking;
  request.generation.constraint = constraint_of(request, *grammar_);
  if (request.generation.constraint) require_satisfiable(*request.generation.constraint);
  const auto length = static_cast<std::int64_t>(prompt.tokens.size());
  std::unique_ptr<Stream> stream = engine_.submit(
      {.prompt = std::move(prompt.tokens), .snapshots = std::move(prompt.snapshots), .generation = request.generation});
  return std::unique_ptr<ChatReply>(new ChatReply(std::move(request), std::move(stream), memory_, length));
}

}  // namespace lily
