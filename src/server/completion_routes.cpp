// POST /v1/completions
#include <httplib.h>

#include <chrono>
#include <thread>

#include "server/api_error.h"
#include "server/http_server.h"
#include "server/openai_completions.h"
#include "server/usage.h"
#include "text/reply_parser.h"

namespace lily {
namespace {

using Json = HttpServer::Json;

Json envelope(const std::string& id, const std::string& model) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return {{"id", id},
          {"object", "text_completion"},
          {"created", std::chrono::duration_cast<std::chrono::seconds>(now).count()},
          {"model", model},
          {"system_fingerprint", "lily"}};
}

class CompletionEvents final : public EventSource {
 public:
  CompletionEvents(std::unique_ptr<Stream> stream, OpenAiCompletionWriter writer, Json envelope, bool include_usage,
                   const Tokenizer& tokenizer)
      : stream_(std::move(stream)),
        writer_(std::move(writer)),
        envelope_(std::move(envelope)),
        include_usage_(include_usage),
        tokenizer_(tokenizer),
        pending_(writer_.echoed()) {}

  std::string next(std::chrono::milliseconds timeout) override {
    const std::optional<StreamEvent> event = stream_->next(timeout);
    if (!event) return {};
    std::string text;
    try {
      pending_ += writer_.add(*event);
      done_ = writer_.finished().has_value();
      if (pending_.empty() && !done_) return {};
      Json chunk = envelope_;
      chunk["choices"] = Json::array({writer_.choice(pending_)});
      pending_.clear();
      text = server_sent_event(chunk);
      if (done_ && include_usage_) {
        Json usage = envelope_;
        usage["choices"] = Json::array();
        usage["usage"] = openai_usage(*writer_.finished(), 0);
        usage["timings"] = timings(*writer_.finished(), tokenizer_);
        text += server_sent_event(usage);
      }
    } catch (const ApiError& error) {
      return fail(error);
    }
    if (done_) text += "data: [DONE]\n\n";
    return text;
  }
  std::string fail(const ApiError& error) override {
    done_ = true;
    return server_sent_event(error.json()) + "data: [DONE]\n\n";
  }
  bool done() const override { return done_; }

 private:
  std::unique_ptr<Stream> stream_;
  OpenAiCompletionWriter writer_;
  Json envelope_;
  bool include_usage_;
  const Tokenizer& tokenizer_;
  std::string pending_;
  bool done_ = false;
};

/// Submits a request; nothing when the queue is full but the client's first prompt was served: it may wait then.
std::unique_ptr<Stream> submit(Engine& engine, const EngineRequest& request, bool first) {
  try {
    return engine.submit(request);
  } catch (const QueueFull&) {
    if (first) throw;
    return nullptr;
  }
}

/// Runs the prompts one after another.
Json complete_all(const HttpServer& server, ChatService& service, const httplib::Request& request,
                  const std::vector<OpenAiCompletionRequest>& wanted, Json result) {
  Json choices = Json::array();
  Finished total;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    OpenAiCompletionWriter writer(wanted[i], service.model(), static_cast<int>(i));
    std::unique_ptr<Stream> stream = submit(service.engine(), wanted[i].engine, i == 0);
    std::string text = writer.echoed();
    server.attend(request, [&](std::chrono::milliseconds timeout) {
      if (stream == nullptr) std::this_thread::sleep_for(timeout);
      if (stream == nullptr) stream = submit(service.engine(), wanted[i].engine, false);
      const auto event = stream != nullptr ? stream->next(timeout) : std::nullopt;
      if (event) text += writer.add(*event);
      return writer.finished().has_value();
    });
    choices.push_back(writer.choice(text));
    const Finished& finished = *writer.finished();
    total.cache = finished.cache;
    total.prompt_tokens += finished.prompt_tokens;
    total.generated_tokens += finished.generated_tokens;
    total.queue_seconds += finished.queue_seconds;
    total.prefill_seconds += finished.prefill_seconds;
    total.decode_seconds += finished.decode_seconds;
  }
  result["choices"] = std::move(choices);
  result["usage"] = openai_usage(total, 0);
  result["timings"] = timings(total, service.model().tokenizer());
  return result;
}

}  // namespace

void add_completion_routes(HttpServer& server) {
  server.post("/v1/completions", [&server](ChatService& service, const Json& body, const httplib::Request& request,
                                           httplib::Response& response) {
    server.require_model(body);
    std::vector<OpenAiCompletionRequest> wanted = parse_openai_completions(body, service.model().tokenizer());
    Json head = envelope("cmpl-" + random_call_id().substr(5), server.options().served_name);
    if (wanted.front().stream) {
      OpenAiCompletionWriter writer(wanted.front(), service.model(), 0);
      auto stream = service.engine().submit(std::move(wanted.front().engine));
      server.stream(request, response,
                    std::make_unique<CompletionEvents>(std::move(stream), std::move(writer), std::move(head),
                                                       wanted.front().include_usage, service.model().tokenizer()));
      return;
    }
    HttpServer::send(response, complete_all(server, service, request, wanted, std::move(head)));
  });
}

}  // namespace lily
