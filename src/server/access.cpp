#include "server/access.h"

#include <arpa/inet.h>

#include <algorithm>

#include "server/ascii_text.h"

namespace lily {
namespace {

bool is_port(std::string_view text) {
  return text.empty() || (text.front() == ':' && text.find_first_not_of("0123456789", 1) == std::string_view::npos);
}

bool is_name(std::string_view text) {
  constexpr std::string_view kMarks = "-._~%!$&'()*+,;=";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return is_ascii_alphanumeric(c) || kMarks.find(c) != std::string_view::npos;
  });
}

bool is_ip_address(const std::string& name) {
  in6_addr address{};
  return ::inet_pton(AF_INET, name.c_str(), &address) == 1 || ::inet_pton(AF_INET6, name.c_str(), &address) == 1;
}

}  // namespace

std::optional<std::string> host_name(std::string_view host) {
  if (!host.starts_with('[')) {
    const std::size_t end = std::min(host.find(':'), host.size());
    if (!is_name(host.substr(0, end)) || !is_port(host.substr(end))) return {};
    return ascii_lower(host.substr(0, end));
  }
  const std::size_t end = host.find(']');
  if (end == std::string_view::npos || !is_port(host.substr(end + 1))) return {};
  std::string address(host.substr(1, end - 1));
  in6_addr ignored{};
  if (::inet_pton(AF_INET6, address.c_str(), &ignored) != 1) return {};
  return address;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return difference == 0;
}

bool key_is_right(const AccessRules& rules, std::string_view authorization, std::string_view x_api_key) {
  if (rules.api_keys.empty()) return true;
  constexpr std::string_view kBearer = "bearer ";
  std::string_view key = x_api_key;
  if (ascii_lower(authorization.substr(0, kBearer.size())) == kBearer) key = authorization.substr(kBearer.size());
  bool right = false;
  for (const std::string& known : rules.api_keys) right |= equal_in_constant_time(known, key);
  return right;
}

bool host_is_allowed(const AccessRules& rules, std::string_view host) {
  const std::optional<std::string> name = host_name(host);
  if (!name) return false;
  if (*name == "localhost" || name->ends_with(".localhost") || is_ip_address(*name)) return true;
  return std::any_of(rules.allowed_hosts.begin(), rules.allowed_hosts.end(),
                     [&](const std::string& allowed) { return allowed == "*" || ascii_lower(allowed) == *name; });
}

bool origin_is_allowed(const AccessRules& rules, std::string_view origin, std::string_view host) {
  if (origin.empty()) return true;
  const std::size_t scheme = origin.find("://");
  if (scheme != std::string_view::npos && ascii_lower(origin.substr(scheme + 3)) == ascii_lower(host)) return true;
  return is_cors_origin(rules, origin);
}

bool is_cors_origin(const AccessRules& rules, std::string_view origin) {
  if (origin.empty()) return false;
  return std::any_of(rules.cors_origins.begin(), rules.cors_origins.end(),
                     [&](const std::string& allowed) { return allowed == "*" || allowed == origin; });
}

}  // namespace lily
