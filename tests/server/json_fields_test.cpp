// Fields of a request: types, ranges, null, and errors that name the field; and the shape of JSON text.
#include "server/json_fields.h"

#include <gtest/gtest.h>

#include "server/json_shape.h"

namespace lily {
namespace {

using Json = nlohmann::ordered_json;

std::string error_of(const std::function<void()>& read) {
  try {
    read();
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status(), 400);
    return error.json()["error"]["param"].is_string() ? error.json()["error"]["param"].get<std::string>() : "";
  }
  return "no error";
}

TEST(JsonFields, AbsentAndNullAreTheSame) {
  const Json json = {{"a", nullptr}};
  const JsonFields fields(json);
  for (const char* name : {"a", "b"}) {
    EXPECT_FALSE(fields.has(name));
    EXPECT_FALSE(fields.boolean(name));
    EXPECT_FALSE(fields.integer(name, 0, 1));
    EXPECT_FALSE(fields.number(name, 0, 1));
    EXPECT_FALSE(fields.text(name));
    EXPECT_FALSE(fields.object(name));
    EXPECT_TRUE(fields.texts(name, 1).empty());
  }
}

TEST(JsonFields, WholeNumbersOfAnySpelling) {
  const auto read = [](const char* text, std::int64_t least = INT64_MIN, std::int64_t most = INT64_MAX) {
    const Json json = Json::parse(text);
    return JsonFields(json).integer("n", least, most);
  };
  EXPECT_EQ(read(R"({"n": 5})"), 5);
  EXPECT_EQ(read(R"({"n": -5})"), -5);
  EXPECT_EQ(read(R"({"n": 5.0})"), 5);
  EXPECT_EQ(read(R"({"n": 1e3})"), 1000);
  EXPECT_EQ(read(R"({"n": 9223372036854775807})"), INT64_MAX);
  EXPECT_EQ(read(R"({"n": -9223372036854775808})"), INT64_MIN);
  for (const char* text :
       {R"({"n": 9223372036854775808})", R"({"n": 18446744073709551615})", R"({"n": 1e300})", R"({"n": -1e300})",
        R"({"n": 9.3e18})", R"({"n": 1.5})", R"({"n": "5"})", R"({"n": true})", R"({"n": []})"}) {
    EXPECT_EQ(error_of([&] { read(text); }), "n") << text;
  }
  EXPECT_EQ(error_of([&] { read(R"({"n": 3})", 0, 2); }), "n");
  EXPECT_EQ(error_of([&] { read(R"({"n": -1})", 0, 2); }), "n");
}

TEST(JsonFields, OtherTypes) {
  const Json json =
      Json::parse(R"({"yes": true, "x": 0.5, "t": "a", "list": ["a", "b"], "mixed": ["a", 1], "o": {"in": 3}})");
  const JsonFields fields(json);
  EXPECT_EQ(fields.boolean("yes"), true);
  EXPECT_EQ(fields.number("x", 0, 1), 0.5F);
  EXPECT_EQ(fields.text("t"), "a");
  EXPECT_EQ(fields.texts("t", 1), std::vector<std::string>{"a"});
  EXPECT_EQ(fields.texts("list", 2).size(), 2U);
  EXPECT_EQ(fields.object("o")->integer("in", 0, 5), 3);
  EXPECT_EQ(error_of([&] { fields.texts("list", 1); }), "list");
  EXPECT_EQ(error_of([&] { fields.texts("mixed", 9); }), "mixed");
  EXPECT_EQ(error_of([&] { fields.number("x", 1, 2); }), "x");
  EXPECT_EQ(error_of([&] { fields.number("t", 1, 2); }), "t");
  EXPECT_EQ(error_of([&] { fields.boolean("t"); }), "t");
  EXPECT_EQ(error_of([&] { fields.text("yes"); }), "yes");
  EXPECT_EQ(error_of([&] { fields.object("t"); }), "t");
  EXPECT_EQ(error_of([&] { fields.object("o")->text("in"); }), "o.in");
  EXPECT_EQ(error_of([] { JsonFields(Json::array()); }), "");
}

TEST(ApiError, SpeaksBothLanguages) {
  const ApiError error({.status = 404, .code = "model_not_found"}, "no such model", "model");
  EXPECT_EQ(
      error.json().dump(),
      R"({"error":{"message":"no such model","type":"invalid_request_error","param":"model","code":"model_not_found"}})");
  EXPECT_EQ(error.anthropic_json().dump(),
            R"({"type":"error","error":{"type":"not_found_error","message":"no such model"}})");
}

TEST(ApiError, QuotesNoMegabytes) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "a\xE2\x82\xAC";  // characters of three bytes, cut nowhere inside
  const std::string message = ApiError({}, text).what();
  EXPECT_LT(message.size(), 1010U);
  EXPECT_EQ(nlohmann::json(message).dump(), '"' + message + '"');
}

TEST(JsonShape, CountsWhatIsOpenAtATime) {
  const auto depth = [](std::string_view text) { return json_shape(text).depth; };
  EXPECT_EQ(depth(""), 0U);
  EXPECT_EQ(depth("[{}, {}, [[]]]"), 3U);
  EXPECT_EQ(depth(R"(["[[[[", "\"[[", {"a{": 1}])"), 2U);
  EXPECT_EQ(depth("\"\\"), 0U);
  EXPECT_EQ(depth(std::string(100000, '[')), 100000U);
}

TEST(JsonShape, CountsValues) {
  const auto values = [](std::string_view text) { return json_shape(text).values; };
  EXPECT_EQ(values("5"), 1U);
  EXPECT_EQ(values(R"([1, [2, ",[{"], {"a": 3, "b": ",\","}])"), 8U);
  EXPECT_GT(values(std::string(std::size_t{5} << 20, '[')), kMostJsonValues);
}

std::string zeros(std::size_t count) {
  std::string text = "[0";
  for (std::size_t i = 1; i < count; ++i) text += ",0";
  return text + ']';
}

// A context of a million tokens as ids is far from the limit, 32 MiB of zeros are beyond.
TEST(JsonFields, BodiesHaveALimitOfValues) {
  EXPECT_EQ(parse_body(zeros(std::size_t{1} << 20)).size(), std::size_t{1} << 20);
  EXPECT_EQ(parse_body(zeros(kMostJsonValues - 1)).size(), kMostJsonValues - 1);
  for (const std::string& text : {zeros(kMostJsonValues), R"({"a": {"b": )" + zeros(kMostJsonValues) + "}}"}) {
    try {
      parse_body(text);
      ADD_FAILURE();
    } catch (const ApiError& error) {
      EXPECT_EQ(error.status(), 413);
      EXPECT_NE(std::string(error.what()).find("2097152 JSON values"), std::string::npos) << error.what();
    }
  }
  EXPECT_TRUE(is_modest_json("[1, 2]"));
  EXPECT_FALSE(is_modest_json(zeros(kMostJsonValues)));
  EXPECT_FALSE(is_modest_json(std::string(kDeepestJson + 1, '[')));
}

TEST(JsonShape, SumsTheSquaresOfTheNumbersOfFields) {
  const auto squares = [](std::string_view text) { return json_shape(text).field_squares; };
  EXPECT_EQ(squares(R"({"a": 1, "b": [2, ":", {"c": 3}], "d": {}})"), 9U + 1U);
  EXPECT_EQ(squares("::}:]{:"), 1U);
}

}  // namespace
}  // namespace lily
