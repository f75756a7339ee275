// Grammars over the model's tokens: what a reply may be, decided token by token.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "sampling/token_constraint.h"
#include "text/tokenizer.h"
#include "text/tool_call_schema.h"

namespace lily {

/// Compiles grammars for one tokenizer. Thread-safe; what it gives is for one reply each.
class GrammarCompiler {
 public:
  /// `eos`: the ids that may end a reply once the grammar is satisfied. `tokenizer` must outlive the compiler.
  GrammarCompiler(const Tokenizer& tokenizer, std::span<const std::int32_t> eos);
  ~GrammarCompiler();

  /// Any JSON object. `or_calls`: or else calls in the model's own format.
  std::shared_ptr<TokenConstraint> json_object(bool or_calls = false);
  /// JSON that a schema accepts. Throws Error that names the keyword for schemas that are invalid or not supported.
  std::shared_ptr<TokenConstraint> json_schema(const std::string& schema, bool or_calls = false);
  /// Any text; a call ends the reply.
  std::shared_ptr<TokenConstraint> one_call_at_most();
  /// At least one call of one of `tools` in the model's own format, and nothing else; `parallel`: more may follow.
  std::shared_ptr<TokenConstraint> tool_calls(std::span<const ToolDefinition> tools, bool parallel);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lily
