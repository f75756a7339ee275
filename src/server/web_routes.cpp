// GET / and /web/...: the files of the web page, which are part of the program (web/). They need no key and no model.
#include <fmt/format.h>
#include <httplib.h>
#include <xxhash.h>

#include "device/embedded.h"
#include "server/http_server.h"
#include "support/error.h"

namespace lily {
namespace {

// Nothing but the page's own files is loaded, nothing inline runs, and HTML strings reach the page through DOMPurify
// only.
constexpr const char* kContentSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types dompurify";

const char* content_type(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  throw Error(fmt::format("the web page has a file of unknown type, {}", name));
}

void add_file(HttpServer& server, const std::string& path, const EmbeddedFile& file) {
  const char* type = content_type(file.name);
  const std::string etag = fmt::format("\"{:016x}\"", XXH3_64bits(file.bytes.data(), file.bytes.size()));
  server.get_public(path, [=](const httplib::Request& request, httplib::Response& response) {
    response.set_header("Cache-Control", "no-cache");  // ask each time: another lily may listen here tomorrow
    response.set_header("ETag", etag);
    response.set_header("Content-Security-Policy", kContentSecurityPolicy);
    response.set_header("X-Content-Type-Options", "nosniff");
    response.set_header("Referrer-Policy", "no-referrer");
    response.set_header("Cross-Origin-Resource-Policy", "same-origin");
    if (request.get_header_value("If-None-Match") == etag) {
      response.status = 304;
      return;
    }
    response.set_content(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size(), type);
  });
}

}  // namespace

void add_web_routes(HttpServer& server) {
  for (const EmbeddedFile& file : embedded::web_files()) {
    if (file.name == "index.html") {
      add_file(server, "/", file);
    } else {
      add_file(server, fmt::format("/web/{}", file.name), file);
    }
  }
}

}  // namespace lily
