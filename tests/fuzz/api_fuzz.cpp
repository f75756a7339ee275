// A request of each API from any bytes, as the server reads them: they are refused with an Error whose JSON can be
// sent, or give a prompt and options that are in their ranges. What a client sends back is looked for in the replay
// memory.
#include <array>
#include <cmath>

#include "server/anthropic.h"
#include "server/json_fields.h"
#include "server/openai_chat.h"
#include "server/openai_completions.h"
#include "server/openai_responses.h"
#include "server/replay_memory.h"
#include "support/error.h"
#include "text/chat_format.h"
#include "text/small_tokenizer.h"

namespace {

using Json = nlohmann::ordered_json;

/// A byte tokenizer with the chat format's control tokens.
const lily::Tokenizer& tokenizer() {
  static const lily::Tokenizer kMade = [] {
    nlohmann::json json = lily::small_tokenizer_json({});
    constexpr std::array kControls = {"<|im_start|>",  "<|im_end|>",       "<think>",         "</think>",
                                      "<tool_call>",   "</tool_call>",     "<tool_response>", "</tool_response>",
                                      "<|image_pad|>", "<|vision_start|>", "<|vision_end|>",  "<|video_pad|>"};
    for (const char* control : kControls) {
      json["added_tokens"].push_back({{"id", 256 + json["added_tokens"].size()}, {"content", control}});
    }
    return lily::tokenizer_of(json);
  }();
  return kMade;
}

void check(const lily::GenerationOptions& options) {
  LILY_CHECK(options.max_tokens >= 0 && options.thinking_budget >= -1);
  LILY_CHECK(options.top_logprobs >= -1 && options.top_logprobs <= 20);
  LILY_CHECK(options.stop.size() <= 32);
  for (const std::string& stop : options.stop) LILY_CHECK(!stop.empty());
  options.sampling.validate(tokenizer().size());  // refuses what the parsers leave to it
  LILY_CHECK(std::isfinite(options.sampling.temperature) && options.sampling.top_k >= 0);
}

void check(lily::ChatRequest request) {
  check(request.generation);
  static lily::ReplayMemory memory(1 << 16);
  memory.recall(request.messages);
  const lily::RenderedChat chat = lily::render_chat(request.messages, request.tools, request.format);
  LILY_CHECK(chat.system_end <= chat.pieces.size() && chat.reply_begin <= chat.pieces.size());
  const auto tokens = tokenizer().encode(chat.pieces);
  LILY_CHECK(!tokens.empty());
  if (request.response_format.kind == lily::ResponseFormat::Kind::kJsonSchema) {
    LILY_CHECK(Json::accept(request.response_format.schema));
  }
  // The last turn, if it is the model's, was its reply to the others: it must be found again.
  if (request.messages.back().role != lily::Role::kAssistant) return;
  lily::ChatMessage reply = std::move(request.messages.back());
  request.messages.pop_back();
  memory.remember(request.messages, reply, lily::reply_opening(request.format.enable_thinking));
  reply.sampled.clear();
  request.messages.push_back(std::move(reply));
  memory.recall(request.messages);
  LILY_CHECK(!request.messages.back().sampled.empty());
}

void check_completions(const Json& body) {
  const auto requests = lily::parse_openai_completions(body, tokenizer());
  LILY_CHECK(!requests.empty());
  for (const lily::OpenAiCompletionRequest& request : requests) {
    LILY_CHECK(!request.engine.prompt.empty());
    check(request.engine.generation);
  }
}

/// As the server writes it: messages may quote bytes that are no UTF-8.
std::size_t size_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace).size();
}

/// Runs `parse`, whose errors have to be errors that can be sent.
template <typename Parse>
void attempt(Parse parse) {
  try {
    parse();
  } catch (const lily::ApiError& error) {
    LILY_CHECK(error.status() >= 400 && error.status() < 500);
    LILY_CHECK(size_of(error.json()) < 8000 && size_of(error.anthropic_json()) < 8000);
  } catch (const lily::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  attempt([&] {
    const Json body = lily::parse_body({reinterpret_cast<const char*>(data), size});
    attempt([&] { check(lily::parse_openai_chat(body).chat); });
    attempt([&] { check(lily::parse_openai_responses(body).chat); });
    attempt([&] { check(lily::parse_anthropic(body, /*keep_billing_header=*/false, /*counting_only=*/true).chat); });
    attempt([&] { check(lily::parse_anthropic(body, /*keep_billing_header=*/true, /*counting_only=*/false).chat); });
    attempt([&] { check_completions(body); });
  });
  return 0;
}
