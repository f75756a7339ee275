// Headers: what is read, and that every kind of damage is named.
#include "checkpoint/safetensors.h"

#include <gtest/gtest.h>

#include "test_files.h"

namespace lily {
namespace {

using test::expect_error;
using test::safetensors;

std::vector<TensorView> parse(const std::string& bytes) {
  return parse_safetensors(std::as_bytes(std::span(bytes.data(), bytes.size())), "some.safetensors");
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

void expect_header_error(const std::string& header, const std::string& data,
                         std::initializer_list<std::string_view> parts) {
  expect_error([&] { parse(safetensors(header, data)); }, parts);
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirBytes) {
  const std::string bytes =
      safetensors("{\"__metadata__\":{\"format\":\"mlx\"}," + entry("b", "BF16", "[2,2]", "[4,12]") + "," +
                      entry("a", "F32", "[]", "[0,4]") + "}",
                  "0123456789ab", 3);
  const std::vector<TensorView> tensors = parse(bytes);
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].dtype, DType::kF32);
  EXPECT_TRUE(tensors[0].shape.empty());
  EXPECT_EQ(tensors[1].name, "b");
  EXPECT_EQ(tensors[1].shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(static_cast<char>(tensors[1].bytes[0]), '4');
  EXPECT_EQ(tensors[1].bytes.size(), 8U);
}

TEST(Safetensors, ReadsEmptyTensorsAndEmptyFiles) {
  EXPECT_TRUE(parse(safetensors("{}", "")).empty());
  const auto tensors = parse(
      safetensors("{" + entry("x", "U8", "[2]", "[0,2]") + "," + entry("e", "F32", "[0,5]", "[0,0]") + "}", "ab"));
  ASSERT_EQ(tensors.size(), 2U);
  EXPECT_TRUE(tensors[0].bytes.empty());
}

TEST(Safetensors, RefusesFilesTooShortForTheirHeader) {
  expect_error([] { parse(""); }, {"some.safetensors", "0 bytes"});
  expect_error([] { parse("1234567"); }, {"7 bytes"});
  expect_error([] { parse(std::string("\xff\0\0\0\0\0\0\0{}", 10)); }, {"claims 255 bytes", "at most 2"});
  expect_error([] { parse(std::string(8, '\xff') + "{}"); }, {"claims 18446744073709551615"});
  expect_error([] { parse(std::string("GGUF\3\0\0\0\0\0\0\0", 12)); }, {"no safetensors file"});
}

TEST(Safetensors, RefusesHeadersLargerThanTheFormatAllows) {
  std::string bytes("\x01\xe1\xf5\x05\0\0\0\0", 8);  // 100,000,001
  bytes.resize(8 + 100'000'001, ' ');
  expect_error([&] { parse(bytes); }, {"claims 100000001", "at most 100000000"});
}

TEST(Safetensors, RefusesWhatIsNotJson) {
  expect_header_error("{", "", {"not valid JSON"});
  expect_header_error("{}x", "", {"not valid JSON"});
  expect_header_error("", "", {"not valid JSON"});
  expect_header_error("{\"a\xff\":{}}", "", {"not valid JSON"});
  expect_header_error(std::string("{}\0", 3), "", {"NUL"});
}

TEST(Safetensors, RefusesWhatIsNotAHeader) {
  expect_header_error("[]", "", {"an array"});
  expect_header_error("3", "", {"a number"});
  expect_header_error("null", "", {"null"});
  expect_header_error(R"({"a":3})", "", {"'a'", "a number"});
  expect_header_error(R"({"a":[]})", "", {"'a'", "an array"});
  expect_header_error(R"({"__metadata__":{"x":{}}})", "", {"an object"});
  expect_header_error(R"({"a":{"dtype":{"x":1}}})", "", {"'dtype'", "an object"});
  expect_header_error(R"({"a":{"shape":[[1]]}})", "", {"an array"});
  expect_header_error(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"more":"x"}})", "z", {"'more'"});
  const std::string deep(100'000, '[');
  expect_header_error(deep, "", {"an array"});
}

TEST(Safetensors, RefusesIncompleteEntries) {
  expect_header_error(R"({"a":{}})", "", {"'a'", "no 'dtype'"});
  expect_header_error(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", "z", {"no 'shape'"});
  expect_header_error(R"({"a":{"dtype":"U8","shape":[1]}})", "z", {"no 'data_offsets'"});
  expect_header_error("{" + entry("a", "U8", "[1]", "[0]") + "}", "z", {"1 data_offsets"});
  expect_header_error("{" + entry("a", "U8", "[1]", "[0,1,2]") + "}", "z", {"3 data_offsets"});
}

TEST(Safetensors, RefusesNamesGivenTwice) {
  const std::string one = entry("a", "U8", "[1]", "[0,1]");
  expect_header_error("{" + one + "," + one + "}", "z", {"'a' is given twice"});
  expect_header_error(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "z",
                      {"'dtype' is given twice"});
}

TEST(Safetensors, RefusesNumbersThatAreNoSizes) {
  expect_header_error("{" + entry("a", "U8", "[-1]", "[0,1]") + "}", "z", {"-1"});
  expect_header_error("{" + entry("a", "U8", "[1]", "[-1,1]") + "}", "z", {"-1"});
  expect_header_error("{" + entry("a", "U8", "[1.5]", "[0,1]") + "}", "z", {"1.5"});
  expect_header_error("{" + entry("a", "U8", "[1e3]", "[0,1]") + "}", "z", {"1e3"});
  expect_header_error("{" + entry("a", "U8", "[99999999999999999999]", "[0,1]") + "}", "z", {"9999"});
  expect_header_error("{" + entry("a", "U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]") + "}", "z", {"more than 8"});
}

TEST(Safetensors, RefusesShapesThatOverflow) {
  expect_header_error("{" + entry("a", "U8", "[18446744073709551615]", "[0,1]") + "}", "z", {"too large"});
  expect_header_error("{" + entry("a", "U8", "[4294967296,4294967296]", "[0,0]") + "}", "", {"too large"});
  // 2^63 bits of 8 dimensions would wrap to nothing in 64 bits.
  expect_header_error("{" + entry("a", "F32", "[65536,65536,65536,65536]", "[0,0]") + "}", "", {"too large"});
}

TEST(Safetensors, RefusesOffsetsOutsideOfTheFile) {
  expect_header_error("{" + entry("a", "U8", "[4]", "[0,4]") + "}", "abc", {"'a'", "0 to 4", "within 0 to 3"});
  expect_header_error("{" + entry("a", "U8", "[4]", "[4,0]") + "}", "abcd", {"4 to 0"});
  expect_header_error("{" + entry("a", "U8", "[1]", "[18446744073709551614,18446744073709551615]") + "}", "a",
                      {"18446744073709551614"});
}

TEST(Safetensors, RefusesSizesThatDoNotFitTheShape) {
  expect_header_error("{" + entry("a", "F32", "[2]", "[0,4]") + "}", "abcd", {"'a'", "4 bytes", "8", "F32 [2]"});
  expect_header_error("{" + entry("a", "QQ", "[2]", "[0,4]") + "}", "abcd", {"'QQ'"});
}

TEST(Safetensors, RefusesOverlapsHolesAndLeftovers) {
  expect_header_error("{" + entry("a", "U8", "[3]", "[0,3]") + "," + entry("b", "U8", "[3]", "[2,5]") + "}", "abcde",
                      {"'b'", "overlap"});
  expect_header_error("{" + entry("a", "U8", "[3]", "[0,3]") + "," + entry("b", "U8", "[3]", "[0,3]") + "}", "abc",
                      {"overlap"});
  expect_header_error("{" + entry("a", "U8", "[1]", "[0,1]") + "," + entry("b", "U8", "[1]", "[2,3]") + "}", "abc",
                      {"'b'", "hole"});
  expect_header_error("{" + entry("a", "U8", "[1]", "[0,1]") + "}", "abc", {"3 bytes of data, expected 1"});
}

TEST(Safetensors, PrintsHostileNamesSafely) {
  const std::string name = R"(\u001b[31m)" + std::string(500, 'x');
  try {
    parse(safetensors("{" + entry(name, "U8", "[2]", "[0,1]") + "}", "a"));
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    EXPECT_LT(text.size(), 400U);
  }
}

}  // namespace
}  // namespace lily
