// POST /v1/responses
#include <httplib.h>

#include "server/http_server.h"
#include "server/openai_responses.h"
#include "support/error.h"

namespace lily {
namespace {

class ResponseEvents final : public EventSource {
 public:
  ResponseEvents(std::unique_ptr<ChatReply> reply, OpenAiResponsesWriter writer)
      : reply_(std::move(reply)), writer_(std::move(writer)) {}

  std::string next(std::chrono::milliseconds timeout) override {
    if (!opened_) {
      opened_ = true;
      return writer_.opening();
    }
    try {
      const std::optional<ReplyStep> step = reply_->next(timeout);
      if (!step) return {};
      done_ = step->finished.has_value();
      return writer_.events(*step);
    } catch (const Error& error) {
      return fail(ApiError({.status = 500}, error.what()));
    }
  }
  std::string fail(const ApiError& error) override {
    done_ = true;
    return writer_.failure(error);
  }
  bool done() const override { return done_; }

 private:
  std::unique_ptr<ChatReply> reply_;
  OpenAiResponsesWriter writer_;
  bool opened_ = false;
  bool done_ = false;
};

}  // namespace

void add_responses_routes(HttpServer& server) {
  server.post("/v1/responses", [&server](ChatService& service, const HttpServer::Json& body,
                                         const httplib::Request& request, httplib::Response& response) {
    server.require_model(body);
    OpenAiResponsesRequest wanted = parse_openai_responses(body);
    OpenAiResponsesWriter writer(wanted, service.model(), server.options().served_name);
    std::unique_ptr<ChatReply> reply = service.reply(std::move(wanted.chat));
    if (wanted.stream) {
      server.stream(request, response, std::make_unique<ResponseEvents>(std::move(reply), std::move(writer)));
      return;
    }
    server.wait(request, *reply, [&](const ReplyStep& step) { writer.events(step); });
    HttpServer::send(response, writer.whole());
  });
}

}  // namespace lily
