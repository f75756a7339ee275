// GET /health, /v1/models, /v1/models/{id}, /metrics; POST /tokenize, /detokenize, /apply-template
#include <httplib.h>

#include "server/api_error.h"
#include "server/http_server.h"
#include "server/json_fields.h"
#include "server/openai_chat.h"

namespace lily {
namespace {

using Json = HttpServer::Json;

Json model_json(const ChatService& service, const std::string& name) {
  const ModelConfig& config = service.model().config();
  return {{"id", name},
          {"object", "model"},
          {"created", 0},
          {"owned_by", "lily"},
          {"context_length", service.engine().options().session.capacity},
          {"max_position_embeddings", config.max_position_embeddings},
          {"vocab_size", service.model().tokenizer().size()}};
}

/// One metric in Prometheus' text format.
void add_metric(std::string& text, const char* name, const char* type, const char* help, double value) {
  text += fmt::format("# HELP lily_{0} {1}\n# TYPE lily_{0} {2}\nlily_{0} {3}\n", name, help, type, value);
}

std::string metrics(const EngineStats& stats) {
  std::string text;
  const auto counter = [&](const char* name, const char* help, auto value) {
    add_metric(text, name, "counter", help, static_cast<double>(value));
  };
  const auto gauge = [&](const char* name, const char* help, auto value) {
    add_metric(text, name, "gauge", help, static_cast<double>(value));
  };
  gauge("requests_running", "Requests that have a session.", stats.running);
  gauge("requests_waiting", "Requests in the queue.", stats.waiting);
  counter("requests_total", "Requests that have ended.", stats.requests);
  counter("requests_failed_total", "Requests that ended in an error of the engine.", stats.failed);
  counter("requests_cancelled_total", "Requests whose client went away.", stats.cancelled);
  counter("prompt_tokens_total", "Prompt tokens, reused ones included.", stats.prompt_tokens);
  counter("cached_tokens_total", "Prompt tokens that were not computed again.", stats.cached_tokens);
  counter("generated_tokens_total", "Generated tokens.", stats.generated_tokens);
  counter("prefill_seconds_total", "Time spent on prompts.", stats.prefill_seconds);
  counter("decode_seconds_total", "Time spent on replies, summed over requests.", stats.decode_seconds);
  gauge("prefix_cache_bytes", "Prefix cache in memory.", stats.cache_bytes);
  gauge("prefix_cache_entries", "Prefixes in memory.", stats.cache_entries);
  gauge("prefix_cache_disk_bytes", "Prefix cache on disk.", stats.cache_disk_bytes);
  return text;
}

void tokenize(ChatService& service, const Json& json, const httplib::Request&, httplib::Response& response) {
  const JsonFields body(json);
  const auto text = body.text("content");
  if (!text) body.fail("content", "is missing");
  const Tokenizer& tokenizer = service.model().tokenizer();
  const bool control = body.boolean("parse_special").value_or(false);
  HttpServer::send(response,
                   {{"tokens", control ? tokenizer.encode_with_control(*text) : tokenizer.encode_text(*text)}});
}

void detokenize(ChatService& service, const Json& json, const httplib::Request&, httplib::Response& response) {
  const JsonFields body(json);
  const Json* tokens = body.find("tokens");
  if (tokens == nullptr || !tokens->is_array()) body.fail("tokens", "is missing or no array");
  std::vector<std::int32_t> ids;
  for (const Json& token : *tokens) {
    if (!token.is_number_integer() || token < 0 || token >= service.model().tokenizer().size()) {
      body.fail("tokens", fmt::format("holds {}, expected ids from 0 to {}", token.dump(),
                                      service.model().tokenizer().size() - 1));
    }
    ids.push_back(token.get<std::int32_t>());
  }
  HttpServer::send(response, {{"content", service.model().tokenizer().decode(ids)}});
}

void apply_template(ChatService& service, const Json& json, const httplib::Request&, httplib::Response& response) {
  const std::vector<std::int32_t> tokens = service.prompt(parse_openai_chat(json).chat);
  HttpServer::send(response, {{"prompt", service.model().tokenizer().decode(tokens)}, {"tokens", tokens}});
}

}  // namespace

void add_model_routes(HttpServer& server) {
  server.get("/health", [](ChatService&, const httplib::Request&, httplib::Response& response) {
    HttpServer::send(response, {{"status", "ok"}});
  });
  server.get("/v1/models", [&server](ChatService& service, const httplib::Request&, httplib::Response& response) {
    HttpServer::send(response,
                     {{"object", "list"}, {"data", Json::array({model_json(service, server.options().served_name)})}});
  });
  server.get(
      "/v1/models/(.+)", [&server](ChatService& service, const httplib::Request& request, httplib::Response& response) {
        const std::string id = request.matches[1];
        if (!server.is_served(id)) {
          throw ApiError({.status = 404, .code = "model_not_found"}, "there is no model '" + id + "' here", "model");
        }
        HttpServer::send(response, model_json(service, id));
      });
  server.get("/metrics", [](ChatService& service, const httplib::Request&, httplib::Response& response) {
    response.set_content(metrics(service.engine().stats()), "text/plain; version=0.0.4; charset=utf-8");
  });
  server.post("/tokenize", tokenize);
  server.post("/detokenize", detokenize);
  server.post("/apply-template", apply_template);
}

}  // namespace lily
