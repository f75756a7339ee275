// lily serve: the OpenAI-compatible server.
#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <future>
#include <thread>

#include "commands.h"
#include "options.h"
#include "progress_line.h"
#include "server/http_server.h"
#include "support/error.h"

namespace lily {
namespace {

struct ServeOptions {
  LoadOptions load;
  EngineOptions engine;
  ServerOptions server;
  std::string api_key_file;
  double cache_gib = 2;
  double disk_gib = 20;
};

void read_api_keys(const std::string& file, std::vector<std::string>& keys) {
  std::ifstream in(file);
  if (!in) throw_error("cannot read the API keys in {}", file);
  for (std::string line; std::getline(in, line);) {
    line.erase(line.find_last_not_of(" \t\r") + 1);
    if (!line.empty() && line.front() != '#') keys.push_back(line);
  }
  if (keys.empty()) throw_error("{} holds no API key: one on each line", file);
}

template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  fmt::print("lily: {}\n", fmt::format(format, std::forward<Args>(args)...));
  std::fflush(stdout);
}

/// What a client on this machine writes for the address that is listened on.
std::string url_host(const std::string& host) {
  if (host == "0.0.0.0" || host == "::") return "127.0.0.1";
  return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

sigset_t end_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

/// SIGINT and SIGTERM, which every thread has blocked. Until wait() they end the process at once: nothing is open yet
/// that would have to be closed well.
class EndSignals {
 public:
  EndSignals()
      : thread_([this] {
          const sigset_t signals = end_signals();
          int signal = 0;
          sigwait(&signals, &signal);
          if (!waited_for_) std::_Exit(signal == 0 ? 0 : 128 + signal);
          ended_.set_value();
        }) {}
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;
  ~EndSignals() {
    if (!waited_for_.exchange(true)) pthread_kill(thread_.native_handle(), SIGTERM);
    thread_.join();
  }

  void wait() {
    waited_for_ = true;
    ended_.get_future().wait();
  }

 private:
  std::atomic<bool> waited_for_ = false;
  std::promise<void> ended_;
  std::thread thread_;
};

std::size_t gibibytes(double value) {
  return static_cast<std::size_t>(value * (1 << 30));
}

void serve(ServeOptions options) {
  if (!options.api_key_file.empty()) read_api_keys(options.api_key_file, options.server.access.api_keys);
  const auto& keys = options.server.access.api_keys;
  if (std::find(keys.begin(), keys.end(), "") != keys.end()) {
    throw Error("the API key is empty, so it would keep nobody out", "is the variable set that --api-key was given?");
  }
  if (keys.empty() && !is_loopback(options.server.host)) {
    say("other machines can use this server without an API key; --api-key-file gives it one");
  }
  options.load.context = options.engine.session.capacity;
  check_model(options.load);  // what is wrong with it is told before clients can come
  std::signal(SIGPIPE, SIG_IGN);
  const sigset_t signals = end_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  options.server.aliases.push_back(options.load.model);
  HttpServer server(options.server);
  add_model_routes(server);
  add_anthropic_routes(server);
  add_chat_routes(server);
  add_completion_routes(server);
  add_responses_routes(server);
  add_web_routes(server);
  server.start();
  say("listening on http://{}:{}", url_host(options.server.host), server.port());
  EndSignals end;
  LoadedModel model(options.load);
  // Half for what live sessions hold on to, half for the prefixes of others.
  options.engine.cache_bytes = gibibytes(options.cache_gib) / 2;
  options.engine.session.snapshot_bytes =
      options.engine.cache_bytes / static_cast<std::size_t>(options.engine.parallel);
  options.engine.cache_disk_bytes = gibibytes(options.disk_gib);
  Engine engine(model, options.engine);
  ChatService service(model, engine, std::size_t{64} << 20);
  server.ready(service);
  say("ready, {} on {}", options.load.model, model.device());
  end.wait();
  say("shutting down");
  server.stop();
}

}  // namespace

void add_serve(CLI::App& app) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command = app.add_subcommand("serve", "an OpenAI-compatible server on this machine");
  add_load_options(*command, options->load);
  ServerOptions& server = options->server;
  command->add_option("--host", server.host, "address to listen on; 0.0.0.0: every network")
      ->check([](const std::string& host) { return host.empty() ? "an empty address would be every network" : ""; })
      ->capture_default_str();
  command->add_option("-p,--port", server.port, "port; 0: any free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command->add_option("--name", server.served_name, "the model's name in answers")->capture_default_str();
  command->add_option("--alias", server.aliases, "another name that requests may give the model; '*': any name")
      ->allow_extra_args(false);
  command->add_option("--api-key", server.access.api_keys, "clients must give this key; may be given several times")
      ->allow_extra_args(false);
  command->add_option("--api-key-file", options->api_key_file, "file with one key on each line");
  command->add_option("--allow-host", server.access.allowed_hosts, "name under which clients may reach this server")
      ->allow_extra_args(false);
  command
      ->add_option("--cors-origin", server.access.cors_origins,
                   "web origin that may read answers, e.g. http://localhost:3000")
      ->allow_extra_args(false);
  command
      ->add_option("--keep-alive-seconds", server.keep_alive_seconds,
                   "silence after which a stream says that it is alive")
      ->check(CLI::Range(1, 10))
      ->capture_default_str();
  command
      ->add_option("--client-timeout-seconds", server.client_timeout_seconds,
                   "a client that sends or takes nothing for so long is dropped")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  command->add_flag("--keep-billing-header", server.keep_billing_header,
                    "keep system blocks of Anthropic clients that change with every request");
  EngineOptions& engine = options->engine;
  command->add_option("-c,--ctx", engine.session.capacity, "tokens of prompt and reply together")
      ->check(CLI::Range(std::int64_t{256}, std::int64_t{1} << 20))
      ->capture_default_str();
  command->add_option("--parallel", engine.parallel, "replies in the making at the same time")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option("--queue", engine.queue, "requests that may wait beyond those")
      ->check(CLI::Range(0, 100000))
      ->capture_default_str();
  command->add_option("--cache-gib", options->cache_gib, "memory for states that may be needed again")
      ->check(number_between(0, 4096))
      ->capture_default_str();
  command->add_option("--cache-dir", engine.cache_directory, "keep such states on disk too, over restarts");
  command->add_option("--cache-disk-gib", options->disk_gib, "most of the disk that --cache-dir may take")
      ->check(number_between(0, 65536))
      ->capture_default_str();
  command->add_flag("--verify-cache", engine.verify_cache, "recompute every reused prompt and compare (slow)");
  command->callback([options] { serve(*options); });
}

}  // namespace lily
