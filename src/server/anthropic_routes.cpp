// POST /v1/messages, /v1/messages/count_tokens
#include <httplib.h>

#include "server/anthropic.h"
#include "server/http_server.h"
#include "support/error.h"

namespace lily {
namespace {

using Json = HttpServer::Json;

class MessageEvents final : public EventSource {
 public:
  MessageEvents(std::unique_ptr<ChatReply> reply, AnthropicWriter writer)
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
      return writer_.events(*step, *reply_);
    } catch (const Error& error) {
      return fail(ApiError({.status = 500}, error.what()));
    }
  }
  std::string fail(const ApiError& error) override {
    done_ = true;
    return "event: error\n" + server_sent_event(error.anthropic_json());
  }
  bool done() const override { return done_; }

 private:
  std::unique_ptr<ChatReply> reply_;
  AnthropicWriter writer_;
  bool opened_ = false;
  bool done_ = false;
};

}  // namespace

void add_anthropic_routes(HttpServer& server) {
  server.post("/v1/messages", [&server](ChatService& service, const Json& body, const httplib::Request& request,
                                        httplib::Response& response) {
    AnthropicRequest wanted = parse_anthropic(body, server.options().keep_billing_header, /*counting_only=*/false);
    const bool streamed = wanted.stream;
    std::unique_ptr<ChatReply> reply = service.reply(std::move(wanted.chat));
    AnthropicWriter writer(*reply, server.options().served_name);
    if (streamed) {
      server.stream(request, response, std::make_unique<MessageEvents>(std::move(reply), std::move(writer)));
      return;
    }
    const Finished finished = server.wait(request, *reply, [](const ReplyStep&) {});
    HttpServer::send(response, writer.whole(finished, *reply));
  });
  server.post("/v1/messages/count_tokens", [&server](ChatService& service, const Json& body, const httplib::Request&,
                                                     httplib::Response& response) {
    AnthropicRequest wanted = parse_anthropic(body, server.options().keep_billing_header, /*counting_only=*/true);
    HttpServer::send(response, {{"input_tokens", service.prompt(std::move(wanted.chat)).size()}});
  });
}

}  // namespace lily
