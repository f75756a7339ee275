// Constraints over the demo model's tokens: what they allow is what was asked for, and a reply can always go on or end.
#include "sampling/grammar.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "checkpoint/checkpoint.h"
#include "support/error.h"

namespace lily {
namespace {

bool is_allowed(std::span<const std::uint32_t> mask, std::int32_t token) {
  return mask.empty() || (mask[static_cast<std::size_t>(token) / 32] >> (token % 32) & 1U) != 0;
}

class GrammarTest : public testing::Test {
 protected:
  std::int32_t control(const char* spelling) const { return *tokenizer_.added_token(spelling); }

  /// Random allowed tokens until the end token; short ones preferred, so that it comes.
  std::string random_reply(TokenConstraint& constraint, std::uint64_t seed, int most = 400) {
    std::mt19937_64 random(seed);
    std::string text;
    for (int step = 0; step < most; ++step) {
      const auto mask = constraint.allowed();
      std::vector<std::int32_t> choices;
      for (std::int32_t id = 0; id < tokenizer_.size(); ++id) {
        if (is_allowed(mask, id)) choices.push_back(id);
      }
      if (choices.empty()) {
        ADD_FAILURE() << "nothing is allowed after " << text;
        return text;
      }
      const bool may_end = is_allowed(mask, eos_);
      const std::int32_t token = may_end ? eos_ : choices[random() % choices.size()];
      constraint.accept(token);
      if (token == eos_) return text;
      text += tokenizer_.is_added(token) ? "<control>" : std::string(tokenizer_.bytes(token));
    }
    return "";
  }

  /// Accepts the tokens of a text; false at the first that is not allowed.
  bool takes(TokenConstraint& constraint, const std::string& text, bool with_control = false) {
    const auto tokens = with_control ? tokenizer_.encode_with_control(text) : tokenizer_.encode_text(text);
    for (const std::int32_t token : tokens) {
      if (!is_allowed(constraint.allowed(), token)) return false;
      constraint.accept(token);
    }
    return true;
  }
  bool may_end(TokenConstraint& constraint) const { return is_allowed(constraint.allowed(), eos_); }

  static ToolDefinition tool(const char* name) {
    return ToolDefinition::from_json({{"name", name}, {"parameters", {{"type", "object"}}}});
  }

  Tokenizer tokenizer_ = Tokenizer::open(resolve_model("demo"));
  std::int32_t eos_ = *tokenizer_.added_token("<|im_end|>");
  GrammarCompiler grammar_{tokenizer_, std::span(&eos_, 1)};
};

TEST_F(GrammarTest, RandomRepliesFollowTheSchema) {
  const std::string schema = R"({"type": "object", "properties": {"n": {"type": "integer"}, "s": {"enum": ["a", "b"]},
      "t": {"type": "string", "maxLength": 4}}, "required": ["n", "s", "t"], "additionalProperties": false})";
  int whole = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const auto constraint = grammar_.json_schema(schema);
    const std::string text = random_reply(*constraint, seed);
    if (text.empty()) continue;
    ++whole;
    const auto value = nlohmann::json::parse(text, nullptr, false);
    ASSERT_TRUE(value.is_object()) << text;
    EXPECT_TRUE(value["n"].is_number_integer()) << text;
    EXPECT_TRUE(value["s"] == "a" || value["s"] == "b") << text;
  }
  EXPECT_GT(whole, 0);
}

TEST_F(GrammarTest, SpacesAreLimited) {
  const auto constraint = grammar_.json_object();
  ASSERT_TRUE(takes(*constraint, "{"));
  int spaces = 0;
  const std::int32_t space = tokenizer_.encode_text(" ").front();
  while (spaces < 100 && is_allowed(constraint->allowed(), space)) {
    constraint->accept(space);
    ++spaces;
  }
  EXPECT_LT(spaces, 100);
}

TEST_F(GrammarTest, BadSchemasAreErrors) {
  for (const char* schema : {R"("text")", R"({"type": "foo"})", R"([])", R"({"$ref": "#/nowhere"})"})
    EXPECT_THROW(grammar_.json_schema(schema), Error) << schema;
}

TEST_F(GrammarTest, WhatCannotBeEnforcedIsAnError) {
  for (const char* schema :
       {R"({"anyOf": []})", R"({"oneOf": []})", R"({"type": []})", R"({"not": {}})",
        R"({"type": "number", "multipleOf": 7})", R"({"allOf": [{"type": "string"}, {"type": "integer"}]})",
        R"({"$ref": "file:///etc/passwd"})", R"({"$ref": "http://x/y\n"})", R"({"format": "a\nb", "type": "string"})",
        R"({"type": "string", "pattern": "(?=x)y"})", R"({"type": "string", "pattern": "(a)\\1"})",
        R"({"type": "object", "properties": {"a": {"items": {"not": {}}}}})", R"({"$defs": {"x": {"if": {}}}})"}) {
    EXPECT_THROW(grammar_.json_schema(schema), Error) << schema;
  }
  // Names and values that read like keywords are none.
  EXPECT_NO_THROW(grammar_.json_schema(
      R"({"type": "object", "properties": {"not": {"type": "string", "pattern": "\\\\1"}, "if": {"enum": ["not"]},
          "multipleOf": {"const": {"not": 1}}, "b": {"allOf": [{"$ref": "#/$defs/b"}]}},
          "$defs": {"b": {"type": "integer"}}})"));
}

TEST_F(GrammarTest, JsonOrACall) {
  for (const bool call : {false, true}) {
    const auto constraint = grammar_.json_schema(R"({"const": {"a": 1}})", true);
    EXPECT_FALSE(may_end(*constraint));
    if (call) {
      EXPECT_TRUE(takes(*constraint, "<tool_call>\n<function=f>\n</function>\n</tool_call>", true));
    } else {
      EXPECT_TRUE(takes(*constraint, "{"));
      EXPECT_FALSE(is_allowed(constraint->allowed(), control("<tool_call>")));
      EXPECT_TRUE(takes(*constraint, "\"a\":1}"));
    }
    EXPECT_TRUE(may_end(*constraint));
  }
  const auto only_json = grammar_.json_schema(R"({"const": 1})");
  EXPECT_FALSE(is_allowed(only_json->allowed(), control("<tool_call>")));
}

TEST_F(GrammarTest, ForcedCalls) {
  const std::vector<ToolDefinition> tools{tool("get"), tool("get_weather")};
  for (const char* name : {"get", "get_weather"}) {
    const auto constraint = grammar_.tool_calls(tools, false);
    EXPECT_FALSE(may_end(*constraint));
    EXPECT_FALSE(is_allowed(constraint->allowed(), tokenizer_.encode_text("Hello").front()));
    const std::string call = std::string("<tool_call>\n<function=") + name + ">\n<parameter=a>\n1\n</parameter>\n";
    EXPECT_TRUE(takes(*constraint, call, true)) << name;
    EXPECT_FALSE(may_end(*constraint));
    EXPECT_TRUE(takes(*constraint, "</function>\n</tool_call>", true));
    EXPECT_TRUE(may_end(*constraint));
    EXPECT_FALSE(takes(*constraint, "\n", true));
  }
  const auto other = grammar_.tool_calls(tools, true);
  EXPECT_FALSE(takes(*other, "<tool_call>\n<function=put>\n", true));
  const auto parallel = grammar_.tool_calls(tools, true);
  const std::string call = "<tool_call>\n<function=get>\n</function>\n</tool_call>";
  EXPECT_TRUE(takes(*parallel, call + "\n" + call, true));
  EXPECT_TRUE(may_end(*parallel));
}

TEST_F(GrammarTest, OneCallAtMost) {
  const auto constraint = grammar_.one_call_at_most();
  EXPECT_TRUE(takes(*constraint, "Let me see.\n<tool_call>\n<function=f>\n</function>\n</tool_call>", true));
  EXPECT_TRUE(may_end(*constraint));
  EXPECT_FALSE(takes(*constraint, "\n"));
}

}  // namespace
}  // namespace lily
