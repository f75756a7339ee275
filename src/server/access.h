// Who may ask: API keys, the Host header against DNS rebinding, and which web origins may read the answers.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lily {

struct AccessRules {
  std::vector<std::string> api_keys;       // none: no key is asked for
  std::vector<std::string> allowed_hosts;  // names besides localhost and IP addresses
  std::vector<std::string> cors_origins;   // origins that may read answers; "*": all
};

/// Takes as long for a wrong key as for a right one of the same length.
bool equal_in_constant_time(std::string_view a, std::string_view b);

/// `authorization`: "Bearer KEY"; `x_api_key`: KEY. True when no key is asked for.
bool key_is_right(const AccessRules& rules, std::string_view authorization, std::string_view x_api_key);

/// "[::1]:8080" -> "::1", "Name:80" -> "name"; nothing for what is no host, with a port or without.
std::optional<std::string> host_name(std::string_view host);

/// A page of another site can reach a local server under the site's own name; such a name is refused. IP addresses,
/// localhost and the named hosts pass; the port does not matter.
bool host_is_allowed(const AccessRules& rules, std::string_view host);

/// Requests that a browser sends for a page carry the page's origin: its own pages and named origins pass, and so does
/// what is no browser (empty).
bool origin_is_allowed(const AccessRules& rules, std::string_view origin, std::string_view host);
/// Whether the answer may be read by that origin's scripts. False for what is no browser (empty).
bool is_cors_origin(const AccessRules& rules, std::string_view origin);

}  // namespace lily
