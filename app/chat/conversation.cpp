#include "chat/conversation.h"

#include <algorithm>
#include <chrono>

#include "support/error.h"

namespace lily {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

Conversation::Conversation(LoadedModel& model, std::int64_t context)
    : model_(model), session_(model.model(), model.ops(), {.capacity = context}) {}

ReplyResult Conversation::reply(const ReplyRequest& request) {
  ReplyResult result;
  result.started = read_prompt(request, result);
  if (!result.started) {
    result.finish = FinishReason::kCancelled;
    return result;
  }
  messages.push_back(generate_message(request, result));
  return result;
}

// False: stopped on the way.
bool Conversation::read_prompt(const ReplyRequest& request, ReplyResult& result) {
  const RenderedChat chat = render_chat(
      messages, tools, {.enable_thinking = request.thinking, .preserve_thinking = request.preserve_thinking});
  SyncOptions sync;
  const std::vector<std::int32_t> tokens = encode(chat, sync.snapshots);
  const auto total = static_cast<std::int64_t>(tokens.size());
  if (total > session_.capacity()) {
    throw Error(fmt::format("the conversation has {} tokens, the context holds {}", total, session_.capacity()),
                "begin a new one with /reset, or start with a larger --ctx");
  }
  std::int64_t reused = -1;  // the first report comes before anything is computed
  sync.progress = [&](std::int64_t done, std::int64_t whole) {
    if (reused < 0) reused = done;
    return request.on_progress(done - reused, whole - reused);
  };
  const Clock::time_point begin = Clock::now();
  const SyncResult synced = session_.sync(tokens, sync);
  result.prefill_seconds = seconds_since(begin);
  result.prompt_tokens = total;
  result.reused_tokens = synced.reused;
  return !synced.cancelled;
}

// The tokens of the prompt, encoded part by part, and the lengths of the prefixes to keep snapshots of.
std::vector<std::int32_t> Conversation::encode(const RenderedChat& chat, std::vector<std::int64_t>& snapshots) const {
  std::vector<std::int32_t> tokens;
  std::size_t begin = 0;
  for (const std::size_t cut : {chat.system_end, chat.last_query_begin, chat.reply_begin, chat.pieces.size()}) {
    const auto at = [&](std::size_t piece) { return chat.pieces.begin() + static_cast<std::ptrdiff_t>(piece); };
    const std::vector<std::int32_t> part = model_.tokenizer().encode(Pieces(at(begin), at(cut)));
    tokens.insert(tokens.end(), part.begin(), part.end());
    snapshots.push_back(static_cast<std::int64_t>(tokens.size()));
    begin = cut;
  }
  return tokens;
}

ChatMessage Conversation::generate_message(const ReplyRequest& request, ReplyResult& result) {
  Generation generation(
      model_.tokenizer(), model_.config().eos_token_ids,
      {.sampling = request.sampling, .max_tokens = request.max_tokens, .in_thinking = request.thinking},
      room_after(result.prompt_tokens, session_.capacity()));
  ReplyParser parser(tools, {.in_reasoning = request.thinking});
  ChatMessage message = ChatMessage::of(Role::kAssistant, "");
  message.reasoning_content = "";
  const auto take = [&](const std::vector<ReplyEvent>& events) {
    for (const ReplyEvent& event : events) {
      apply(event, message);
      result.calls_are_complete &= event.complete;
      request.on_event(event);
    }
  };
  std::vector<std::int32_t> tokens;
  const Clock::time_point begin = Clock::now();
  result.finish = generate(session_, generation, [&](const GeneratedToken& token) {
    if (!token.is_end) tokens.push_back(token.sampled.token);
    if (!token.text.empty()) take(parser.push(token.text, false));
    if (!token.control.empty()) take(parser.push(token.control, true));
    return request.goes_on();
  });
  take(parser.finish());
  result.decode_seconds = seconds_since(begin);
  result.generated_tokens = generation.count();
  message.sampled = reply_opening(request.thinking);
  if (!tokens.empty()) message.sampled.push_back({plain_text(parser.raw()), false, std::move(tokens)});
  return message;
}

}  // namespace lily
