// JSON grammars are xgrammar's. Calls in the model's own format need no grammar engine: their header is one of a few
// token sequences, and what is inside is the reply parser's business.
#include "sampling/grammar.h"

#include <dlpack/dlpack.h>
#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "sampling/schema_check.h"
#include "support/error.h"

namespace lily {
namespace {

using Mask = std::vector<std::uint32_t>;

constexpr int kMostSpaces = 16;  // in a row, between JSON's tokens: without a limit a reply can be spaces to the end

void allow(Mask& mask, std::int32_t token) {
  mask[static_cast<std::size_t>(token) / 32] |= 1U << (token % 32);
}
void forbid(Mask& mask, std::int32_t token) {
  mask[static_cast<std::size_t>(token) / 32] &= ~(1U << (token % 32));
}

class JsonConstraint final : public TokenConstraint {
 public:
  JsonConstraint(const xgrammar::CompiledGrammar& grammar, std::size_t words) : matcher_(grammar), mask_(words) {}

  std::span<const std::uint32_t> allowed() override {
    std::int64_t shape = static_cast<std::int64_t>(mask_.size());
    DLTensor tensor{};
    tensor.data = mask_.data();
    tensor.device = {kDLCPU, 0};
    tensor.ndim = 1;
    tensor.dtype = {kDLInt, 32, 1};
    tensor.shape = &shape;
    return matcher_.FillNextTokenBitmask(&tensor) ? std::span<const std::uint32_t>(mask_)
                                                  : std::span<const std::uint32_t>();
  }

  void accept(std::int32_t token) override {
    if (!matcher_.AcceptToken(token)) throw_error("the grammar refused token {}, which it had allowed", token);
  }

 private:
  xgrammar::GrammarMatcher matcher_;
  Mask mask_;
};

/// What every reply with forced calls shares.
struct CallTokens {
  std::int32_t call = 0;        // <tool_call>
  std::int32_t call_end = 0;    // </tool_call>
  std::int32_t empty_line = 0;  // "\n\n", which the model likes to write first
  std::vector<std::int32_t> eos;
  Mask body;  // everything but control tokens, and </tool_call>
};

/// [\n\n] <tool_call> \n<function=NAME>\n ... </tool_call>, and where calls may be parallel any number of \n and
/// another.
class ToolCallConstraint final : public TokenConstraint {
 public:
  ToolCallConstraint(const CallTokens& tokens, std::vector<std::vector<std::int32_t>> headers, std::int32_t line_break,
                     bool parallel)
      : tokens_(tokens), headers_(std::move(headers)), line_break_(line_break), parallel_(parallel) {}

  std::span<const std::uint32_t> allowed() override {
    if (place_ == Place::kBody) return tokens_.body;
    mask_.assign(tokens_.body.size(), 0);
    switch (place_) {
      case Place::kStart:
        allow(mask_, tokens_.empty_line);
        [[fallthrough]];
      case Place::kCall:
        allow(mask_, tokens_.call);
        break;
      case Place::kHeader:
        for (const auto& header : headers_) {
          if (std::equal(written_.begin(), written_.end(), header.begin())) allow(mask_, header[written_.size()]);
        }
        break;
      case Place::kBody:
        break;
      case Place::kAfter:
        for (const std::int32_t token : tokens_.eos) allow(mask_, token);
        if (parallel_) allow(mask_, line_break_);
        break;
    }
    return mask_;
  }

  void accept(std::int32_t token) override {
    switch (place_) {
      case Place::kStart:
      case Place::kCall:
        place_ = token == tokens_.call ? Place::kHeader : Place::kCall;
        written_.clear();
        break;
      case Place::kHeader:
        written_.push_back(token);
        if (std::find(headers_.begin(), headers_.end(), written_) != headers_.end()) place_ = Place::kBody;
        break;
      case Place::kBody:
        if (token == tokens_.call_end) place_ = Place::kAfter;
        break;
      case Place::kAfter:
        place_ = Place::kCall;
        break;
    }
  }

 private:
  enum class Place { kStart, kCall, kHeader, kBody, kAfter };

  const CallTokens& tokens_;
  std::vector<std::vector<std::int32_t>> headers_;
  std::int32_t line_break_;
  bool parallel_;
  Place place_ = Place::kStart;
  std::vector<std::int32_t> written_;  // of the header
  Mask mask_;
};

/// JSON, or else calls: the first token decides. What follows <tool_call> is free.
class JsonOrCallConstraint final : public TokenConstraint {
 public:
  JsonOrCallConstraint(std::shared_ptr<TokenConstraint> json, std::int32_t call)
      : json_(std::move(json)), call_(call) {}

  std::span<const std::uint32_t> allowed() override {
    if (json_ == nullptr) return {};
    const std::span<const std::uint32_t> json = json_->allowed();
    if (begun_ || json.empty()) return json;
    mask_.assign(json.begin(), json.end());
    allow(mask_, call_);
    return mask_;
  }
  void accept(std::int32_t token) override {
    if (!begun_ && token == call_) json_ = nullptr;
    begun_ = true;
    if (json_ != nullptr) json_->accept(token);
  }

 private:
  std::shared_ptr<TokenConstraint> json_;  // none: there are calls
  std::int32_t call_;
  bool begun_ = false;
  Mask mask_;
};

class OneCallConstraint final : public TokenConstraint {
 public:
  OneCallConstraint(const CallTokens& tokens, std::size_t words) : call_end_(tokens.call_end), only_end_(words) {
    for (const std::int32_t token : tokens.eos) allow(only_end_, token);
  }

  std::span<const std::uint32_t> allowed() override {
    return called_ ? std::span<const std::uint32_t>(only_end_) : std::span<const std::uint32_t>();
  }
  void accept(std::int32_t token) override { called_ = called_ || token == call_end_; }

 private:
  std::int32_t call_end_;
  Mask only_end_;
  bool called_ = false;
};

std::int32_t control_token(const Tokenizer& tokenizer, const char* spelling) {
  const auto token = tokenizer.added_token(spelling);
  if (!token) throw_error("the tokenizer has no token {}, which forced tool calls need", spelling);
  return *token;
}

std::int32_t single_token(const Tokenizer& tokenizer, const char* text) {
  const std::vector<std::int32_t> tokens = tokenizer.encode_text(text);
  LILY_CHECK(!tokens.empty());
  return tokens.front();
}

CallTokens call_tokens(const Tokenizer& tokenizer, std::span<const std::int32_t> eos) {
  CallTokens tokens;
  tokens.call = control_token(tokenizer, "<tool_call>");
  tokens.call_end = control_token(tokenizer, "</tool_call>");
  tokens.empty_line = single_token(tokenizer, "\n\n");
  tokens.eos.assign(eos.begin(), eos.end());
  tokens.body.assign(static_cast<std::size_t>(tokenizer.size() + 31) / 32, ~std::uint32_t{0});
  for (std::int32_t id = 0; id < tokenizer.size(); ++id) {
    if (tokenizer.is_added(id)) forbid(tokens.body, id);
  }
  allow(tokens.body, tokens.call_end);
  return tokens;
}

/// JSON has no control characters but as escapes; xgrammar's rule for strings of bounded length lets them through. Line
/// breaks between values stay.
bool has_control_character(std::string_view bytes) {
  return std::any_of(bytes.begin(), bytes.end(), [](char c) { return c >= 0 && c < ' ' && c != '\n'; });
}

std::vector<std::string> vocabulary(const Tokenizer& tokenizer) {
  std::vector<std::string> pieces;
  for (std::int32_t id = 0; id < tokenizer.size(); ++id) {
    // xgrammar takes pieces without bytes for special: they are never part of JSON.
    const bool usable = !tokenizer.is_added(id) && !has_control_character(tokenizer.bytes(id));
    pieces.emplace_back(usable ? tokenizer.bytes(id) : std::string_view());
  }
  return pieces;
}

xgrammar::TokenizerInfo tokenizer_info(const Tokenizer& tokenizer, std::span<const std::int32_t> eos) {
  return xgrammar::TokenizerInfo(vocabulary(tokenizer), xgrammar::VocabType::RAW, tokenizer.size(),
                                 std::vector<std::int32_t>(eos.begin(), eos.end()));
}

/// xgrammar's messages begin with the time and its own source line, "[12:00:00] file.cc:10: ", and end with a line
/// break.
std::string_view without_place(std::string_view message) {
  constexpr std::string_view kSource = ".cc:";
  if (const std::size_t source = message.find(kSource); source != std::string_view::npos) {
    const std::size_t end = message.find(": ", source + kSource.size());
    if (end != std::string_view::npos) message.remove_prefix(end + 2);
  }
  while (!message.empty() && message.back() == '\n') message.remove_suffix(1);
  return message;
}

}  // namespace

struct GrammarCompiler::Impl {
  Impl(const Tokenizer& of, std::span<const std::int32_t> ends) : tokenizer(of), eos(ends.begin(), ends.end()) {}

  /// Made at the first use: preparing a vocabulary of 248,077 pieces takes a moment that most servers never need.
  xgrammar::GrammarCompiler& compiler() {
    if (!json) {
      constexpr int kThreads = 2;
      constexpr std::int64_t kCacheBytes = std::int64_t{64} << 20;
      json = std::make_unique<xgrammar::GrammarCompiler>(tokenizer_info(tokenizer, eos), kThreads, true, kCacheBytes);
    }
    return *json;
  }
  std::size_t mask_words() const { return static_cast<std::size_t>(tokenizer.size() + 31) / 32; }
  std::shared_ptr<TokenConstraint> constraint(const xgrammar::CompiledGrammar& grammar, bool or_calls) const {
    std::shared_ptr<TokenConstraint> only_json = std::make_shared<JsonConstraint>(grammar, mask_words());
    if (!or_calls) return only_json;
    return std::make_shared<JsonOrCallConstraint>(std::move(only_json), control_token(tokenizer, "<tool_call>"));
  }
  const CallTokens& call_tokens_once() {
    if (!calls) calls = std::make_unique<CallTokens>(call_tokens(tokenizer, eos));
    return *calls;
  }

  const Tokenizer& tokenizer;
  std::vector<std::int32_t> eos;
  std::mutex mutex;
  std::unique_ptr<xgrammar::GrammarCompiler> json;
  std::unique_ptr<CallTokens> calls;
};

GrammarCompiler::GrammarCompiler(const Tokenizer& tokenizer, std::span<const std::int32_t> eos)
    : impl_(std::make_unique<Impl>(tokenizer, eos)) {}

GrammarCompiler::~GrammarCompiler() = default;

std::shared_ptr<TokenConstraint> GrammarCompiler::json_object(bool or_calls) {
  const std::lock_guard lock(impl_->mutex);
  return impl_->constraint(
      impl_->compiler().CompileJSONSchema(R"({"type": "object"})", true, {}, {}, false, kMostSpaces), or_calls);
}

std::shared_ptr<TokenConstraint> GrammarCompiler::json_schema(const std::string& schema, bool or_calls) {
  check_schema(schema);
  const std::lock_guard lock(impl_->mutex);
  try {
    return impl_->constraint(impl_->compiler().CompileJSONSchema(schema, true, {}, {}, true, kMostSpaces), or_calls);
  } catch (const std::exception& error) {
    throw Error(fmt::format("the JSON schema cannot be enforced: {}", without_place(error.what())));
  }
}

std::shared_ptr<TokenConstraint> GrammarCompiler::one_call_at_most() {
  const std::lock_guard lock(impl_->mutex);
  return std::make_shared<OneCallConstraint>(impl_->call_tokens_once(), impl_->mask_words());
}

std::shared_ptr<TokenConstraint> GrammarCompiler::tool_calls(std::span<const ToolDefinition> tools, bool parallel) {
  const std::lock_guard lock(impl_->mutex);
  const CallTokens& tokens = impl_->call_tokens_once();
  std::vector<std::vector<std::int32_t>> headers;
  for (const ToolDefinition& tool : tools)
    headers.push_back(impl_->tokenizer.encode_text("\n<function=" + tool.name + ">\n"));
  return std::make_shared<ToolCallConstraint>(tokens, std::move(headers), single_token(impl_->tokenizer, "\n"),
                                              parallel);
}

}  // namespace lily
