// What restricts the next token: a grammar (JSON schema, forced tool call). Implemented in grammar.cpp.
#pragma once

#include <cstdint>
#include <span>

namespace lily {

class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  /// One bit per id, lowest first, for the next token; empty: every token is allowed. Valid until the next call.
  virtual std::span<const std::uint32_t> allowed() = 0;
  /// The token that was chosen; it was allowed.
  virtual void accept(std::int32_t token) = 0;
};

}  // namespace lily
