// POST /v1/chat/completions
#include <httplib.h>

#include "server/api_error.h"
#include "server/http_server.h"
#include "server/openai_chat.h"

namespace lily {
namespace {

class ChatEvents final : public EventSource {
 public:
  ChatEvents(std::unique_ptr<ChatReply> reply, OpenAiChatWriter writer)
      : reply_(std::move(reply)), writer_(std::move(writer)) {}

  std::string next(std::chrono::milliseconds timeout) override {
    if (!opened_) {
      opened_ = true;
      return server_sent_event(writer_.opening());
    }
    std::string text;
    try {
      const std::optional<ReplyStep> step = reply_->next(timeout);
      if (!step) return text;
      for (const auto& chunk : writer_.chunks(*step, *reply_)) text += server_sent_event(chunk);
      done_ = step->finished.has_value();
    } catch (const Error& error) {
      return fail(ApiError({.status = 500, .type = "server_error"}, error.what()));
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
  std::unique_ptr<ChatReply> reply_;
  OpenAiChatWriter writer_;
  bool opened_ = false;
  bool done_ = false;
};

}  // namespace

void add_chat_routes(HttpServer& server) {
  server.post("/v1/chat/completions", [&server](ChatService& service, const HttpServer::Json& body,
                                                const httplib::Request& request, httplib::Response& response) {
    server.require_model(body);
    OpenAiChatRequest wanted = parse_openai_chat(body);
    OpenAiChatWriter writer(wanted, service.model(), server.options().served_name);
    const bool streamed = wanted.stream;
    std::unique_ptr<ChatReply> reply = service.reply(std::move(wanted.chat));
    if (streamed) {
      server.stream(request, response, std::make_unique<ChatEvents>(std::move(reply), std::move(writer)));
      return;
    }
    const Finished finished = server.wait(request, *reply, [&](const ReplyStep& step) { writer.add(step); });
    HttpServer::send(response, writer.whole(finished, *reply));
  });
}

}  // namespace lily
