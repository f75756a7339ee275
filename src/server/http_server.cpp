#include "server/http_server.h"

#include <httplib.h>
#include <sys/socket.h>

#include <algorithm>
#include <thread>

#include "server/api_error.h"
#include "server/client_socket.h"
#include "server/front.h"
#include "server/json_fields.h"
#include "server/request_body.h"

namespace lily {
namespace {

constexpr std::chrono::milliseconds kPoll{100};     // how soon a client that went away is noticed
constexpr std::chrono::milliseconds kDrain{1500};   // for open requests to end by themselves
constexpr std::chrono::milliseconds kWriting{500};  // for the last bytes of a response
constexpr int kIdleSeconds = 10;

/// What went wrong, as an API error. Errors of ours are the request's fault, anything else is the server's.
ApiError api_error(const std::exception& error) {
  if (const auto* known = dynamic_cast<const ApiError*>(&error)) return *known;
  if (dynamic_cast<const QueueFull*>(&error) != nullptr)
    return overloaded("too many requests are waiting; try again soon");
  if (const auto* known = dynamic_cast<const ContextTooLong*>(&error))
    return ApiError({.code = "context_length_exceeded"}, fmt::format("{} ({})", known->what(), known->hint()),
                    "messages");
  if (const auto* known = dynamic_cast<const Error*>(&error)) {
    return ApiError({}, known->hint().empty() ? known->what() : fmt::format("{} ({})", known->what(), known->hint()));
  }
  return ApiError({.status = 500, .type = "server_error"}, error.what());
}

/// No exception may reach the library here: the response has begun, and its thread has no handler any more.
std::string next_events(EventSource& events) {
  try {
    return events.next(kPoll);
  } catch (const std::exception& error) {
    return events.fail(ApiError({.status = 500, .type = "server_error"}, error.what()));
  }
}

/// Reuses an address whose connections are closing, but never shares a port with a living server. What a client does
/// not read waits in the kernel, for each connection up to so much: the system's own limit is megabytes.
void set_socket_options(socket_t socket) {
  const int yes = 1;
  const int send_bytes = 128 << 10;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof(send_bytes));
}

ConnectionLimits connection_limits(const ServerOptions& options) {
  const std::chrono::seconds silence(options.client_timeout_seconds);
  ConnectionLimits limits{.idle = std::chrono::seconds(kIdleSeconds), .silence = silence};
  limits.header = std::min(limits.header, silence);
  return limits;
}

}  // namespace

std::string server_sent_event(const nlohmann::ordered_json& json) {
  return "data: " + json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n\n";
}

HttpServer::HttpServer(const ServerOptions& options)
    : options_(options), server_(std::make_unique<Front>(connection_limits(options))) {
  const auto threads = static_cast<std::size_t>(options.max_connections);
  server_->new_task_queue = [threads] { return new httplib::ThreadPool(threads); };
  server_->set_tcp_nodelay(true);
  server_->set_socket_options(set_socket_options);
  server_->set_keep_alive_timeout(kIdleSeconds);  // what responses say, like the next one
  server_->set_keep_alive_max_count(Front::kMostRequests);
  server_->set_payload_max_length(options.max_body_bytes);
  add_common_handlers();
  if (options.port == 0) {
    port_ = server_->bind_to_any_port(options.host);
  } else if (server_->bind_to_port(options.host, options.port)) {
    port_ = options.port;
  }
  if (port_ <= 0) {
    throw Error(fmt::format("cannot listen on {} port {}", options.host, options.port),
                options.port == 0 ? "check --host: it must be an address of this machine"
                                  : "another program may use the port: choose one with --port");
  }
  server_->let_wait(options.max_connections);
}

HttpServer::~HttpServer() {
  stop();
}

void HttpServer::start() {
  thread_ = std::thread([this] {
    server_->listen_after_bind();
    ended_ = true;
  });
}

void HttpServer::stop() {
  using std::chrono::steady_clock;
  stopping_ = true;
  if (!thread_.joinable()) return;
  const auto begin = steady_clock::now();
  auto busy = begin;  // when there was last a request
  while (!ended_) {
    const auto now = steady_clock::now();
    if (in_flight_ > 0) busy = now;
    // The library ends streams in the middle, so it has to wait; and it waits for idle connections, so they are cut. A
    // response is written after its request has ended.
    if (in_flight_ == 0 || now - begin > kDrain) server_->stop();
    if (now - begin > 2 * kDrain || now - busy > kWriting) server_->cut_connections();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  thread_.join();
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
  server_->set_error_handler([this](const httplib::Request& request, httplib::Response& response) {
    if (response.has_header("Content-Type")) return;  // it says already what is wrong
    std::string message = fmt::format("{} {} is not served here", request.method, request.path);
    int status = response.status;
    if (status == 413) message = "the request body is too large";
    if (status == 414) message = "the request's address is too long";
    if (status == 400) message = "the request is not valid HTTP";
    if (const auto known = methods_.find(request.path); status == 404 && known != methods_.end()) {
      status = 405;
      message = fmt::format("{} is served for {} only", request.path, known->second);
      response.set_header("Allow", known->second);
    }
    if (status != 404 && status != 405) response.set_header("Connection", "close");  // what follows is no request
    send_error(request, response, ApiError({.status = status}, message));
  });
  server_->set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
    if (has_handler(request)) return httplib::Server::HandlerResponse::Unhandled;
    send_not_found(request, response);
    return httplib::Server::HandlerResponse::Handled;
  });
  server_->set_expect_100_continue_handler([this](const httplib::Request& request, httplib::Response& response) {
    if (has_handler(request)) return 100;
    send_not_found(request, response);
    return response.status;
  });
  // A route or the library, or both, may say that the connection ends.
  server_->set_post_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
    response.headers.erase("Accept-Ranges");         // the library would promise them
    const bool old = request.version == "HTTP/1.0";  // ends its connection, unless both say that they keep it
    const bool ends = old && request.get_header_value("Connection") != "Keep-Alive";
    if (!response.has_header("Connection") && !ends) {
      if (old) response.set_header("Connection", "keep-alive");
      return;
    }
    response.headers.erase("Connection");
    response.headers.erase("Keep-Alive");
    response.set_header("Connection", "close");
    server_->close_after(request);
  });
  server_->Options(".*", [this](const httplib::Request& request, httplib::Response& response) {
    if (!admit(request, response)) return;
    response.set_header("Access-Control-Allow-Methods", "GET, POST, OPTIONS");
    const std::string wanted = request.get_header_value("Access-Control-Request-Headers");
    response.set_header("Access-Control-Allow-Headers", wanted.empty() ? "Authorization, Content-Type" : wanted);
    response.set_header("Access-Control-Max-Age", "86400");
    response.status = 204;
  });
}

bool HttpServer::has_handler(const httplib::Request& request) const {
  if (request.method == "GET" || request.method == "HEAD" || request.method == "OPTIONS") return true;
  const auto known = methods_.find(request.path);
  return known != methods_.end() && known->second == request.method;
}

/// The error handler finds the words.
void HttpServer::send_not_found(const httplib::Request& request, httplib::Response& response) {
  response.status = 404;
  const bool has_body = request.has_header("Transfer-Encoding") ||
                        (request.has_header("Content-Length") && request.get_header_value("Content-Length") != "0");
  if (has_body) response.set_header("Connection", "close");  // it is not read
}

/// Checks host, origin and key; false: the response says why not.
bool HttpServer::admit(const httplib::Request& request, httplib::Response& response) const {
  const AccessRules& rules = options_.access;
  const std::string host = request.get_header_value("Host");
  const std::string origin = request.get_header_value("Origin");
  const auto refuse = [&](int status, const char* code, const std::string& message) {
    send_error(request, response, ApiError({.status = status, .code = code}, message));
    return false;
  };
  if (!host_name(host)) return refuse(403, "host_not_allowed", "the Host '" + host + "' is not the name of a host");
  if (!host_is_allowed(rules, host)) {
    return refuse(403, "host_not_allowed", "the host '" + host + "' is not allowed; add it with --allow-host");
  }
  if (!origin_is_allowed(rules, origin, host)) {
    return refuse(403, "origin_not_allowed", "the origin '" + origin + "' is not allowed; add it with --cors-origin");
  }
  if (is_cors_origin(rules, origin)) response.set_header("Access-Control-Allow-Origin", origin);
  if (!rules.cors_origins.empty()) response.set_header("Vary", "Origin");  // an answer without it is another one
  const bool open = request.method == "OPTIONS" || public_paths_.contains(request.path);
  if (!open && !key_is_right(rules, request.get_header_value("Authorization"), request.get_header_value("X-Api-Key"))) {
    return refuse(401, "invalid_api_key", "the API key is missing or wrong");
  }
  return true;
}

void HttpServer::fail(const httplib::Request& request, httplib::Response& response, const std::exception& error) const {
  send_error(request, response, api_error(error));
}

void HttpServer::send_error(const httplib::Request& request, httplib::Response& response, const ApiError& error) {
  if (error.status() == 503) response.set_header("Retry-After", "1");
  const bool anthropic = request.path.starts_with("/v1/messages");
  send(response, anthropic ? error.anthropic_json() : error.json(), error.status());
}

void HttpServer::send(httplib::Response& response, const Json& json, int status) {
  response.status = status;
  response.set_content(json.dump(-1, ' ', false, Json::error_handler_t::replace), "application/json; charset=utf-8");
}

void HttpServer::post(const std::string& path, JsonHandler handler) {
  methods_[path] = "POST";
  server_->Post(path, [this, handler = std::move(handler)](const httplib::Request& request, httplib::Response& response,
                                                           const httplib::ContentReader& reader) {
    const InFlight counted(in_flight_);
    const BodyLimits limits{options_.max_body_bytes, std::chrono::seconds(options_.client_timeout_seconds)};
    std::string body;
    try {
      // Read even if the request is refused: what is left of it would pass for the next request.
      body = read_body(request, server_->content_encoding(request), reader, limits);
    } catch (const std::exception& error) {
      fail(request, response, error);
      response.set_header("Connection", "close");
      return;
    }
    try {
      if (!admit(request, response)) return;
      handler(service(), parse_body(body), request, response);
    } catch (const std::exception& error) {
      fail(request, response, error);
    }
  });
}

void HttpServer::get(const std::string& path, Handler handler) {
  methods_[path] = "GET";
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

void HttpServer::get_public(const std::string& path, PublicHandler handler) {
  methods_[path] = "GET";
  public_paths_.insert(path);
  server_->Get(path,
               [this, handler = std::move(handler)](const httplib::Request& request, httplib::Response& response) {
                 if (admit(request, response)) handler(request, response);
               });
}

void HttpServer::stream(const httplib::Request& request, httplib::Response& response,
                        std::unique_ptr<EventSource> source) const {
  const std::chrono::seconds silence(options_.keep_alive_seconds);
  response.set_header("Cache-Control", "no-cache");
  response.set_header("X-Accel-Buffering", "no");
  auto write = [events = std::shared_ptr<EventSource>(std::move(source)),
                client = ClientWatch(server_->socket_of(request), silence), silence,
                counted = std::make_shared<InFlight>(in_flight_), &stopping = stopping_,
                last = std::chrono::steady_clock::now()](std::size_t, httplib::DataSink& sink) mutable {
    std::string text = next_events(*events);
    if (stopping && !events->done()) text += events->fail(overloaded("the server is shutting down"));
    const auto now = std::chrono::steady_clock::now();
    const ClientWatch::Finding finding = client.look();
    if (finding == ClientWatch::Finding::kGone) return false;
    const bool ask = finding == ClientWatch::Finding::kAsk || now - last >= silence;
    if (text.empty() && ask) text = ": keep-alive\n\n";
    if (!text.empty()) {
      last = now;
      if (!sink.write(text.data(), text.size())) return false;
    }
    if (events->done()) sink.done();
    return true;
  };
  constexpr const char* kType = "text/event-stream";
  if (request.version != "HTTP/1.0") {
    response.set_chunked_content_provider(kType, std::move(write));
    return;
  }
  // That knows no chunks: the end of the connection ends the stream.
  response.set_header("Connection", "close");
  response.set_content_provider(kType, std::move(write));
}

bool HttpServer::is_served(const std::string& name) const {
  const auto& aliases = options_.aliases;
  return name == options_.served_name || std::find(aliases.begin(), aliases.end(), name) != aliases.end() ||
         std::find(aliases.begin(), aliases.end(), "*") != aliases.end();
}

void HttpServer::require_model(const Json& body) const {
  const auto found = body.find("model");
  if (found == body.end() || found->is_null()) return;
  if (!found->is_string()) throw bad_field("model", "expected a string");
  const auto name = found->get<std::string>();
  if (is_served(name)) return;
  throw ApiError({.status = 404, .code = "model_not_found"},
                 fmt::format("there is no model '{}' here, only '{}'", name, options_.served_name), "model");
}

void HttpServer::attend(const httplib::Request& request,
                        const std::function<bool(std::chrono::milliseconds)>& step) const {
  using Finding = ClientWatch::Finding;
  ClientWatch client(server_->socket_of(request), std::chrono::seconds(options_.keep_alive_seconds));
  while (!step(kPoll)) {
    const Finding finding = client.look();
    // The one thing that may stand before a response, and only in HTTP/1.1.
    const bool may_ask = request.version == "HTTP/1.1";
    if (finding == Finding::kGone || (finding == Finding::kAsk && !may_ask)) {
      throw ApiError(
          {.code = "client_closed"},
          "the client has closed its side of the connection before the answer was there, so it counts as gone; "
          "in HTTP/1.1, or with a stream, it would have been asked");
    }
    if (finding == Finding::kAsk) client.socket().say("HTTP/1.1 100 Continue\r\n\r\n");
    if (stopping_) throw overloaded("the server is shutting down");
  }
}

Finished HttpServer::wait(const httplib::Request& request, ChatReply& reply,
                          const std::function<void(const ReplyStep&)>& on_step) const {
  std::optional<Finished> finished;
  attend(request, [&](std::chrono::milliseconds timeout) {
    std::optional<ReplyStep> step = reply.next(timeout);
    if (step) on_step(*step);
    if (step) finished = std::move(step->finished);
    return finished.has_value();
  });
  return *std::move(finished);
}

}  // namespace lily
