#include "support/json.h"

#include <gtest/gtest.h>

#include "checkpoint/test_files.h"
#include "support/mapped_file.h"

namespace lily {
namespace {

using test::expect_error;

TEST(Json, ParsesWithinItsLimits) {
  EXPECT_EQ(parse_json(R"({"a":[1,{"b":null}]})", "x")["a"][0], 1);
  std::string nested;
  for (int i = 0; i < 60; ++i) nested += '[';
  nested += '1';
  for (int i = 0; i < 60; ++i) nested += ']';
  EXPECT_TRUE(parse_json(nested, "x").is_array());
}

TEST(Json, RefusesWithTheFilesName) {
  expect_error([] { parse_json("", "x.json"); }, {"x.json", "not valid JSON"});
  expect_error([] { parse_json("{\"a\":1}\n}", "x.json"); }, {"at byte 9 of 9"});
  expect_error([] { parse_json(std::string(70, '['), "x.json"); }, {"deeper than 64"});
  expect_error([] { parse_json(std::string(70, '{'), "x.json"); }, {"not valid JSON"});
  expect_error([] { parse_json(R"({"a":{"b":1,"b":2}})", "x.json"); }, {"'b' is given twice"});
  expect_error([] { parse_json("1e999", "x.json"); }, {"not valid JSON"});
  expect_error([] { parse_json(std::string("1\0", 2), "x.json"); }, {"NUL"});
  EXPECT_EQ(parse_json(R"([{"a":1},{"a":2}])", "x").size(), 2U);
}

TEST(Json, FilesHaveALimit) {
  const test::TemporaryDirectory directory;
  const auto file = directory.path() / "x.json";
  test::write_bytes(file, "[1, 2]");
  EXPECT_EQ(read_json_file(file).size(), 2U);
  expect_error([&] { read_json_file(file, 5); }, {"x.json", "6 bytes", "at most 5"});
  expect_error([&] { read_json_file(directory.path() / "y.json"); }, {"y.json", "cannot be read"});
}

TEST(Json, NamesArePrintedSafely) {
  EXPECT_EQ(printable("a.b-C"), "a.b-C");
  EXPECT_EQ(printable("a\x1b\n\x7f\xc3\xa4"), "a?????");
  EXPECT_EQ(printable(std::string(200, 'x')), std::string(120, 'x') + "...");
}

TEST(MappedFile, MapsMovesAndRefuses) {
  const test::TemporaryDirectory directory;
  const auto file = directory.path() / "x";
  test::write_bytes(file, "");
  EXPECT_TRUE(MappedFile(file).bytes().empty());
  test::write_bytes(file, "abc");
  MappedFile first(file);
  MappedFile second(std::move(first));
  first = std::move(second);
  EXPECT_EQ(first.bytes().size(), 3U);
  EXPECT_EQ(first.path(), file);
  expect_error([&] { MappedFile bad(directory.path()); }, {"a directory"});
  expect_error([&] { MappedFile bad("/dev/null"); }, {"device or pipe"});
  expect_error([&] { MappedFile bad(directory.path() / "y"); }, {"No such file"});
}

TEST(MappedFile, ReleasedPagesStayReadable) {
  const test::TemporaryDirectory directory;
  const auto file = directory.path() / "x";
  std::string text(100'000, 'x');
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i % 26);
  test::write_bytes(file, text);
  const MappedFile mapped(file);
  const std::span<const std::byte> bytes = mapped.bytes();
  release_pages(bytes);
  release_pages(bytes.subspan(1, 70'000));
  release_pages(bytes.subspan(5, 10));
  release_pages(bytes.subspan(100, 0));
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()), text);
}

}  // namespace
}  // namespace lily
