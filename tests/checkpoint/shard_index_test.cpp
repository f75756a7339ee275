#include "checkpoint/shard_index.h"

#include <gtest/gtest.h>

#include "test_files.h"

namespace lily {
namespace {

void expect_index_error(const std::string& text, std::initializer_list<std::string_view> parts) {
  test::expect_error([&] { parse_shard_index(text, "index.json"); }, parts);
}

TEST(ShardIndex, GivesTheFileOfEachTensor) {
  const auto files = parse_shard_index(
      R"({"metadata":{"total_size":1},"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors"}})", "index.json");
  ASSERT_EQ(files.size(), 2U);
  EXPECT_EQ(files.at("b"), "m-2.safetensors");
}

TEST(ShardIndex, RefusesOtherDocuments) {
  expect_index_error("", {"index.json", "not valid JSON"});
  expect_index_error("{", {"not valid JSON"});
  expect_index_error("[]", {"weight_map"});
  expect_index_error("{}", {"weight_map"});
  expect_index_error(R"({"weight_map":[]})", {"weight_map"});
  expect_index_error(R"({"weight_map":{}})", {"no tensor"});
  expect_index_error(R"({"weight_map":{"a":1}})", {"'a'", "no file name"});
  expect_index_error(R"({"weight_map":{"a":"x.safetensors","a":"y.safetensors"}})", {"'a' is given twice"});
  expect_index_error(R"({"weight_map":{"a":1e999}})", {"not valid JSON"});
}

TEST(ShardIndex, RefusesDeepNesting) {
  expect_index_error(std::string(200'000, '['), {"nested deeper"});
  std::string objects;
  for (int i = 0; i < 10'000; ++i) objects += R"({"a":)";
  expect_index_error(objects, {"nested deeper"});
}

TEST(ShardIndex, RefusesPathsThatLeaveTheDirectory) {
  for (const char* name : {"../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..\\\\x.safetensors",
                           "x.safetensors\\u0000", "", ".safetensors", "passwd", "..", "model.bin"}) {
    expect_index_error(std::string(R"({"weight_map":{"a":")") + name + "\"}}", {"same directory"});
  }
  expect_index_error(R"({"weight_map":{"a":")" + std::string(300, 'x') + R"(.safetensors"}})", {"same directory"});
}

}  // namespace
}  // namespace lily
