// The HTTP side: listens, checks access and limits, reads JSON, writes JSON or server-sent events. What the routes mean
// is in the routes_*.cpp files. It listens before the model is loaded: until ready() every route but /health answers
// 503.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "server/access.h"
#include "server/api_error.h"
#include "server/chat_service.h"

namespace httplib {
struct Request;
struct Response;
}  // namespace httplib

namespace lily {

class Front;

/// Counts a request as long as it lives.
class InFlight {
 public:
  explicit InFlight(std::atomic<int>& count) : count_(count) { ++count_; }
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;
  ~InFlight() { --count_; }

 private:
  std::atomic<int>& count_;
};

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;  // 0: any free one
  AccessRules access;
  std::string served_name = "lily";  // the model's name in answers
  std::vector<std::string> aliases;  // other names that requests may give it; "*": any
  std::size_t max_body_bytes = std::size_t{32} << 20;
  int max_connections = 512;         // each has a thread while it is open
  int keep_alive_seconds = 5;        // silence after which a stream gets a comment
  bool keep_billing_header = false;  // see parse_anthropic
  int client_timeout_seconds = 30;   // a client that sends or takes nothing for so long is dropped
};

/// The source of a server-sent event stream.
class EventSource {
 public:
  virtual ~EventSource() = default;
  /// The next events ("data: ...\n\n" each), empty after `timeout` without any. done() is true after the last.
  virtual std::string next(std::chrono::milliseconds timeout) = 0;
  virtual bool done() const = 0;
  /// Ends the stream: the events that say why.
  virtual std::string fail(const ApiError& error) = 0;
};

class HttpServer {
 public:
  using Json = nlohmann::ordered_json;

  /// Binds; throws Error when the address cannot be had.
  explicit HttpServer(const ServerOptions& options);
  ~HttpServer();

  int port() const { return port_; }
  const ServerOptions& options() const { return options_; }

  /// Serves from now on.
  void start();
  /// Refuses new requests, ends open ones with an error, closes all connections, within seconds.
  void stop();
  /// From now on the routes are served. `service` must outlive the server's run.
  void ready(ChatService& service);

  // For the route files.
  using JsonHandler = std::function<void(ChatService&, const Json& body, const httplib::Request&, httplib::Response&)>;
  using Handler = std::function<void(ChatService&, const httplib::Request&, httplib::Response&)>;
  using PublicHandler = std::function<void(const httplib::Request&, httplib::Response&)>;
  /// A JSON object in; Errors become error objects in the words of `api`.
  void post(const std::string& path, JsonHandler handler);
  void get(const std::string& path, Handler handler);
  /// Without a key, and before ready() too.
  void get_public(const std::string& path, PublicHandler handler);
  void stream(const httplib::Request& request, httplib::Response& response, std::unique_ptr<EventSource> source) const;
  /// Calls `step`, which waits for no longer than its argument, until it gives true. Throws ApiError when the client
  /// goes away before, or the server shuts down.
  void attend(const httplib::Request& request, const std::function<bool(std::chrono::milliseconds)>& step) const;
  /// Waits for the whole reply. Throws as attend.
  Finished wait(const httplib::Request& request, ChatReply& reply,
                const std::function<void(const ReplyStep&)>& on_step) const;
  /// Whether the model has this name, or one of the other names that requests may give it.
  bool is_served(const std::string& name) const;
  /// 404 when the request names another model; clients may leave it out.
  void require_model(const Json& body) const;
  static void send(httplib::Response& response, const Json& json, int status = 200);

 private:
  void add_common_handlers();
  /// Whether the library may go on: it would read the body of any other request into memory, without a limit.
  bool has_handler(const httplib::Request& request) const;
  static void send_not_found(const httplib::Request& request, httplib::Response& response);
  bool admit(const httplib::Request& request, httplib::Response& response) const;
  static void send_error(const httplib::Request& request, httplib::Response& response, const ApiError& error);
  void fail(const httplib::Request& request, httplib::Response& response, const std::exception& error) const;
  ChatService& service() const;

  ServerOptions options_;
  std::unique_ptr<Front> server_;
  int port_ = 0;
  std::atomic<ChatService*> service_ = nullptr;
  std::map<std::string, std::string> methods_;  // of each path
  std::set<std::string> public_paths_{"/health"};
  mutable std::atomic<int> in_flight_ = 0;  // requests that are being answered
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

/// /health, /v1/models, /metrics, /tokenize, /detokenize, /apply-template
void add_model_routes(HttpServer& server);
/// /v1/chat/completions
void add_chat_routes(HttpServer& server);
/// /v1/messages, /v1/messages/count_tokens
void add_anthropic_routes(HttpServer& server);
/// /v1/completions
void add_completion_routes(HttpServer& server);
/// The web page: / and /web/...
void add_web_routes(HttpServer& server);

/// /v1/responses
void add_responses_routes(HttpServer& server);

/// "data: JSON\n\n"
std::string server_sent_event(const nlohmann::ordered_json& json);

}  // namespace lily
