// --model: directories, hub ids, demo.
#include <gtest/gtest.h>

#include <cstdlib>

#include "checkpoint/checkpoint.h"
#include "test_files.h"

namespace lily {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

class ResolveTest : public ::testing::Test {
 protected:
  ResolveTest() {
    for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"}) ::unsetenv(name);
    ::setenv("HF_HOME", directory_.path().c_str(), 1);
  }
  fs::path add_model(const fs::path& cache, const std::string& folder, const std::string& commit) {
    const fs::path root = cache / folder;
    fs::create_directories(root / "refs");
    fs::create_directories(root / "snapshots" / commit);
    test::write_bytes(root / "refs" / "main", commit);
    return root / "snapshots" / commit;
  }

  test::TemporaryDirectory directory_;
};

TEST_F(ResolveTest, DemoIsTheEmbeddedModel) {
  EXPECT_EQ(resolve_model("demo"), fs::path(LILY_SOURCE_DIR) / "models" / "demo");
}

TEST_F(ResolveTest, DirectoriesAreTaken) {
  EXPECT_EQ(resolve_model(directory_.path().string()), directory_.path());
}

TEST_F(ResolveTest, IdsAreFoundInTheHubCache) {
  const fs::path snapshot = add_model(directory_.path() / "hub", "models--some-org--A.Model_4bit", "0123abcd");
  EXPECT_EQ(resolve_model("some-org/A.Model_4bit"), snapshot);
}

TEST_F(ResolveTest, HubCacheVariablesAreHeeded) {
  const fs::path snapshot = add_model(directory_.path() / "elsewhere", "models--o--m", "77");
  ::setenv("HF_HUB_CACHE", (directory_.path() / "elsewhere").c_str(), 1);
  EXPECT_EQ(resolve_model("o/m"), snapshot);
  ::unsetenv("HF_HUB_CACHE");
  ::unsetenv("HF_HOME");
  ::setenv("XDG_CACHE_HOME", directory_.path().c_str(), 1);
  const fs::path other = add_model(directory_.path() / "huggingface" / "hub", "models--o--m", "78");
  EXPECT_EQ(resolve_model("o/m"), other);
}

TEST_F(ResolveTest, WhatIsNotThereIsExplained) {
  expect_error([] { resolve_model("o/m"); }, {"'o/m'", "hub cache", "hf download o/m"});
  fs::create_directories(directory_.path() / "hub" / "models--o--m" / "refs");
  expect_error([] { resolve_model("o/m"); }, {"no snapshot", "incomplete"});
  test::write_bytes(directory_.path() / "hub" / "models--o--m" / "refs" / "main", "../../../etc");
  expect_error([] { resolve_model("o/m"); }, {"no snapshot"});
  for (const char* name : {"nowhere", "/no/such/path", "../x/y", "./m", "a/b/c", "o/..", "", "o/", "/m"}) {
    expect_error([&] { resolve_model(name); }, {"no such directory"});
  }
}

}  // namespace
}  // namespace lily
