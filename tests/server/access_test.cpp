// Who may ask: keys, hosts, origins.
#include "server/access.h"

#include <gtest/gtest.h>

namespace lily {
namespace {

TEST(Access, Keys) {
  EXPECT_TRUE(key_is_right({}, "", ""));
  const AccessRules rules{.api_keys = {"first", "second"}};
  EXPECT_TRUE(key_is_right(rules, "Bearer first", ""));
  EXPECT_TRUE(key_is_right(rules, "bearer second", ""));
  EXPECT_TRUE(key_is_right(rules, "", "second"));
  for (const char* authorization : {"", "first", "Bearer", "Bearer ", "Bearer firs", "Bearer first ", "Basic first"})
    EXPECT_FALSE(key_is_right(rules, authorization, "")) << authorization;
  EXPECT_FALSE(key_is_right(rules, "Bearer wrong", "first"));  // the header that is there decides
  EXPECT_FALSE(key_is_right(rules, "", "Bearer first"));
}

TEST(Access, HostNames) {
  EXPECT_EQ(host_name("Local-Host:80"), "local-host");
  EXPECT_EQ(host_name("a_b%20.c:"), "a_b%20.c");
  EXPECT_EQ(host_name("[::1]:80"), "::1");
  EXPECT_EQ(host_name("127.0.0.1"), "127.0.0.1");
  for (const char* host : {"", ":80", "[::1", "[::1]a", "[::1]80", "[::1]:x", "[127.0.0.1]", "[]", "::1", "a:b",
                           "a:80:80", "a b", "me@a", "a/", "[a]", "\xc3\xa4", "a]"})
    EXPECT_FALSE(host_name(host)) << host;
}

TEST(Access, HostsAgainstDnsRebinding) {
  const AccessRules rules{.allowed_hosts = {"Box.example"}};
  for (const char* host : {"localhost", "LOCALHOST:80", "app.localhost:1", "127.0.0.1", "127.0.0.1:8080", "[::1]",
                           "[::1]:80", "192.168.1.5:8080", "box.example", "BOX.EXAMPLE:8080"})
    EXPECT_TRUE(host_is_allowed(rules, host)) << host;
  for (const char* host :
       {"", ":80", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "xlocalhost", "[", "[]",
        "[evil]:80", "[::1", "[::1]x", "127.0.0.1:evil.example", "local%68ost", "box.example.evil", "127.1"})
    EXPECT_FALSE(host_is_allowed(rules, host)) << host;
  EXPECT_TRUE(host_is_allowed({.allowed_hosts = {"*"}}, "any.example"));
}

TEST(Access, Origins) {
  const AccessRules rules{.cors_origins = {"http://app.example"}};
  EXPECT_TRUE(origin_is_allowed(rules, "", "localhost:1"));
  EXPECT_TRUE(origin_is_allowed(rules, "http://LOCALHOST:1", "localhost:1"));
  EXPECT_TRUE(origin_is_allowed(rules, "http://app.example", "localhost:1"));
  for (const char* origin : {"null", "http://localhost:2", "http://app.example.evil", "https://app.example", "x"})
    EXPECT_FALSE(origin_is_allowed(rules, origin, "localhost:1")) << origin;
  EXPECT_TRUE(is_cors_origin({.cors_origins = {"*"}}, "http://any"));
  EXPECT_TRUE(is_cors_origin({.cors_origins = {"*"}}, "null"));
  EXPECT_FALSE(is_cors_origin({.cors_origins = {"*", ""}}, ""));
}

TEST(Access, ConstantTimeComparison) {
  EXPECT_TRUE(equal_in_constant_time("", ""));
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abd"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abcd"));
}

}  // namespace
}  // namespace lily
