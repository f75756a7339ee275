#include "server/http_server.h"

#include <httplib.h>
#include <sys/socket.h>

#include <thread>

#include "server/api_error.h"
#include "server/client_socket.h"

namespace lily {
namespace {

constexpr int kDeepestJson = 128;
constexpr std::chrono::milliseconds kPoll{100};  // how soon a client that went away is noticed

ApiError overloaded(const std::string& message) {
  return ApiError({.status = 503, .type = "server_error", .code = "overloaded"}, message);
}

/// What went wrong, as an API error. Errors of ours are the request's fault, anything else is the server's.
ApiError api_error(const std::exception& error) {
  if (const auto* known = dynamic_cast<const ApiError*>(&error)) return *known;
  if (dynamic_cast<const QueueFull*>(&error) != nullptr)
    return overloaded("too many requests are waiting; try again soon");
  if (const auto* known = dynamic_cast<const Error*>(&error)) {
    return ApiError({}, known->hint().empty() ? known->what() : fmt::format("{} ({})", known->what(), known->hint()));
  }
  return ApiError({.status = 500, .type = "server_error"}, error.what());
}

nlohmann::ordered_json parse_body(const std::string& body) {
  using Json = nlohmann::ordered_json;
  const auto check_depth = [](int depth, Json::parse_event_t, Json&) {
    if (depth > kDeepestJson)
      throw ApiError({}, fmt::format("the request body is nested deeper than {} levels", kDeepestJson));
    return true;
  };
  try {
    return Json::parse(body, check_depth);
  } catch (const Json::exception& error) {
    throw ApiError({}, fmt::format("the request body is not valid JSON: {}", error.what()));
  }
}

/// Reuses an address whose connections are closing, but never shares a port with a living server.
void set_socket_options(socket_t socket) {
  const int yes = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
}

}  // namespace

std::string server_sent_event(const nlohmann::ordered_json& json) {
  return "data: " + json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n\n";
}

HttpServer::HttpServer(const ServerOptions& options) : options_(options), server_(std::make_unique<httplib::Server>()) {
  const auto threads = static_cast<std::size_t>(options.max_connections);
  server_->new_task_queue = [threads] { return new httplib::ThreadPool(threads); };
  server_->set_tcp_nodelay(true);
  server_->set_socket_options(set_socket_options);
  server_->set_keep_alive_max_count(1000);
  server_->set_read_timeout(options.client_timeout_seconds);
  server_->set_write_timeout(options.client_timeout_seconds);
  server_->set_payload_max_length(options.max_body_bytes);
  add_common_handlers();
  if (options.port == 0) {
    port_ = server_->bind_to_any_port(options.host);
  } else if (server_->bind_to_port(options.host, options.port)) {
    port_ = options.port;
  }
  if (port_ <= 0) {
    throw Error(fmt::format("cannot listen on {} port {}", options.host, options.port),
                "another program may use the port: choose one with --port");
  }
}

HttpServer::~HttpServer() = default;

void HttpServer::run() {
  if (!stopping_) server_->listen_after_bind();
}

void HttpServer::stop() {
  stopping_ = true;
  server_->stop();
}

void HttpServer::ready(ChatService& service) {
  service_ = &service;
}

ChatService& HttpServer::service() const {
  ChatService* service = service_;
  if (service == nullptr) throw overloaded("the model is still being loaded");
  if (stopping_) throw overloaded("the server is shutting down");
  return *service;
}

void HttpServer::add_common_handlers() {
  server_->set_exception_handler(
      [this](const httplib::Request& request, httplib::Response& response, std::exception_ptr error) {
        try {
          std::rethrow_exception(error);
        } catch (const std::exception& known) {
          fail(request, response, known);
        } catch (...) {
          fail(request, response, std::runtime_error("unknown error"));
        }
      });
  server_->set_error_handler([](const httplib::Request& request, httplib::Response& response) {
    if (!response.body.empty()) return;
    std::string message = fmt::format("{} {} is not served here", request.method, request.path);
    if (response.status == 413) message = "the request body is too large";
    if (response.status == 400) message = "the request is not valid HTTP";
    send(response, ApiError({.status = response.status}, message).json(), response.status);
  });
  server_->Options(".*", [this](const httplib::Request& request, httplib::Response& response) {
    if (!admit(request, response)) return;
    response.set_header("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    response.set_header("Access-Control-Allow-Headers", "Authorization, Content-Type, X-Api-Key, Anthropic-Version");
    response.set_header("Access-Control-Max-Age", "86400");
    response.status = 204;
  });
}

/// Checks host, origin and key; false: the response says why not.
bool HttpServer::admit(const httplib::Request& request, httplib::Response& response) const {
  const AccessRules& rules = options_.access;
  const std::string host = request.get_header_value("Host");
  const std::string origin = request.get_header_value("Origin");
  const auto refuse = [&](int status, const char* type, const std::string& message) {
    send(response, ApiError({.status = status, .type = type}, message).json(), status);
    return false;
  };
  if (!host_is_allowed(rules, host)) {
    return refuse(403, "permission_error", "the host '" + host + "' is not allowed; add it with --allow-host");
  }
  if (!origin_is_allowed(rules, origin, host)) {
    return refuse(403, "permission_error", "the origin '" + origin + "' is not allowed; add it with --cors-origin");
  }
  if (is_cors_origin(rules, origin)) {
    response.set_header("Access-Control-Allow-Origin", origin);
    response.set_header("Vary", "Origin");
  }
  const bool open = request.method == "OPTIONS" || request.path == "/health" || request.path == "/";
  if (!open && !key_is_right(rules, request.get_header_value("Authorization"), request.get_header_value("X-Api-Key"))) {
    return refuse(401, "authentication_error", "the API key is missing or wrong");
  }
  return true;
}

void HttpServer::fail(const httplib::Request& request, httplib::Response& response, const std::exception& error) const {
  const ApiError known = api_error(error);
  if (known.status() == 503) response.set_header("Retry-After", "1");
  if (request.path.starts_with("/v1/messages")) {
    send(response, {{"type", "error"}, {"error", {{"type", known.type()}, {"message", known.what()}}}}, known.status());
  } else {
    send(response, known.json(), known.status());
  }
}

void HttpServer::send(httplib::Response& response, const Json& json, int status) {
  response.status = status;
  response.set_content(json.dump(-1, ' ', false, Json::error_handler_t::replace), "application/json; charset=utf-8");
}

void HttpServer::post(const std::string& path, JsonHandler handler) {
  server_->Post(path,
                [this, handler = std::move(handler)](const httplib::Request& request, httplib::Response& response) {
                  if (!admit(request, response)) return;
                  try {
                    ChatService& chat = service();
                    handler(chat, parse_body(request.body), request, response);
                  } catch (const std::exception& error) {
                    fail(request, response, error);
                  }
                });
}

void HttpServer::get(const std::string& path, Handler handler) {
  server_->Get(path,
               [this, handler = std::move(handler)](const httplib::Request& request, httplib::Response& response) {
                 if (!admit(request, response)) return;
                 try {
                   handler(service(), request, response);
                 } catch (const std::exception& error) {
                   fail(request, response, error);
                 }
               });
}

void HttpServer::stream(const httplib::Request& request, httplib::Response& response,
                        std::unique_ptr<EventSource> source) const {
  const std::chrono::seconds silence(options_.keep_alive_seconds);
  response.set_header("Cache-Control", "no-cache");
  response.set_header("X-Accel-Buffering", "no");
  response.set_chunked_content_provider(
      "text/event-stream", [events = std::shared_ptr<EventSource>(std::move(source)),
                            client = ClientSocket(request.remote_addr, request.remote_port), silence,
                            last = std::chrono::steady_clock::now()](std::size_t, httplib::DataSink& sink) mutable {
        std::string text = events->next(kPoll);
        const auto now = std::chrono::steady_clock::now();
        if (text.empty() && now - last >= silence) text = ": keep-alive\n\n";
        if (client.closed()) return false;
        if (!text.empty()) {
          last = now;
          if (!sink.write(text.data(), text.size())) return false;
        }
        if (events->done()) sink.done();
        return true;
      });
}

std::optional<Finished> HttpServer::wait(const httplib::Request& request, ChatReply& reply,
                                         const std::function<void(const ReplyStep&)>& on_step) const {
  const ClientSocket client(request.remote_addr, request.remote_port);
  for (;;) {
    std::optional<ReplyStep> step = reply.next(kPoll);
    if (client.closed()) return {};
    if (!step) continue;
    on_step(*step);
    if (step->finished) return step->finished;
  }
}

}  // namespace lily
