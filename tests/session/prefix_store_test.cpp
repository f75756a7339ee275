// The prefix cache on disk: what was written comes back after a restart, what is damaged does not, a budget bounds it.
#include "session/prefix_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <random>

#include "session/prefix_samples.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

class PrefixStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::temp_directory_path() / ("lily_prefix_store_test_" + std::to_string(::getpid()));
    fs::remove_all(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::unique_ptr<PrefixStore> open(std::size_t budget = std::size_t{1} << 30, std::uint64_t model = 1) const {
    return std::make_unique<PrefixStore>(directory_,
                                         PrefixStore::Shape{.model_id = model,
                                                            .layout = "test",
                                                            .recurrent_bytes = kSampleRecurrentBytes,
                                                            .kv_bytes_per_token = kSampleKvBytes,
                                                            .vocab = kSampleVocab},
                                         budget);
  }
  std::vector<fs::path> files(const std::string& ending = "") const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(directory_)) {
      if (entry.is_regular_file() && entry.path().string().ends_with(ending)) found.push_back(entry.path());
    }
    std::sort(found.begin(), found.end());
    return found;
  }
  std::size_t bytes_on_disk() const {
    std::size_t bytes = 0;
    for (const fs::path& file : files()) bytes += fs::file_size(file);
    return bytes;
  }

  fs::path directory_;
};

TEST_F(PrefixStoreTest, ComesBackAfterARestart) {
  const auto tokens = sample_tokens(600);
  {
    const auto store = open();
    store->insert(sample_prefix(sample_tokens(300)));
    store->insert(sample_prefix(tokens));
  }  // the destructor writes what is queued
  const auto store = open();
  EXPECT_EQ(store->bytes(), bytes_on_disk());
  const auto longer = sample_tokens(1000);
  const auto found = store->find(longer, 0);
  ASSERT_NE(found, nullptr);
  EXPECT_TRUE(equal(*found, *sample_prefix(tokens)));
  EXPECT_EQ(store->find(longer, 600), nullptr);
  EXPECT_EQ(store->find(sample_tokens(599), 0)->length(), 300);
  EXPECT_EQ(store->find(sample_tokens(600, 200, 1), 0), nullptr);
  EXPECT_EQ(store->find(sample_tokens(600, 400, 1), 0)->length(), 300);
}

TEST_F(PrefixStoreTest, WhereAPromptLeavesThemIsKnownAfterARestart) {
  const auto tokens = sample_tokens(600);
  {
    const auto store = open();
    EXPECT_EQ(store->nearest(tokens).common, 0);
    store->insert(sample_prefix(sample_tokens(300)));
    store->insert(sample_prefix(tokens));
  }
  const auto store = open();
  EXPECT_EQ(store->nearest(sample_tokens(1000)).common, 600);
  EXPECT_FALSE(store->nearest(sample_tokens(1000)).known_token);
  const auto other = store->nearest(sample_tokens(600, 450, 1));
  EXPECT_EQ(other.common, 450);
  EXPECT_EQ(other.known_token, tokens[450]);
  const auto shorter = store->nearest(sample_tokens(100));
  EXPECT_EQ(shorter.common, 100);
  EXPECT_EQ(shorter.known_token, tokens[100]);
}

TEST_F(PrefixStoreTest, HeadsThatAreNotThoseOfTheirNamesAreRemoved) {
  open()->insert(sample_prefix(sample_tokens(300)));
  const fs::path file = files(".prefix").front();
  const fs::path wrong = file.parent_path() / (std::string(32, '0') + "-300.prefix");
  fs::copy_file(file, wrong);
  fs::copy_file(file, file.parent_path() / (std::string(32, '1') + "-999999999999999999.prefix"));
  EXPECT_EQ(open()->nearest(sample_tokens(300)).common, 300);
  EXPECT_EQ(files(".prefix").size(), 1U);
}

TEST_F(PrefixStoreTest, PrefixesShareTheirBlocksFiles) {
  const auto store = open();
  store->insert(sample_prefix(sample_tokens(512)));
  store->insert(sample_prefix(sample_tokens(768)));
  store->flush();
  EXPECT_EQ(files(".kv").size(), 3U);
  EXPECT_EQ(files(".prefix").size(), 2U);
}

TEST_F(PrefixStoreTest, AnyDamageCountsAsNotThere) {
  const auto tokens = sample_tokens(600);
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    {
      const auto store = open();
      store->insert(sample_prefix(tokens));
    }
    const auto all = files();
    const fs::path victim = all[random() % all.size()];
    const auto size = fs::file_size(victim);
    switch (round % 4) {
      case 0: {
        std::fstream file(victim, std::ios::in | std::ios::out | std::ios::binary);
        const auto place = static_cast<std::streamoff>(random() % size);
        file.seekg(place);
        const auto byte = static_cast<char>(file.get() ^ (1 << random() % 8));
        file.seekp(place);
        file.put(byte);
        break;
      }
      case 1:
        fs::resize_file(victim, random() % size);
        break;
      case 2:
        std::ofstream(victim, std::ios::app) << "more";
        break;
      default:
        fs::remove(victim);
    }
    const auto store = open();
    EXPECT_EQ(store->find(tokens, 0), nullptr) << victim << " " << round;
    store->insert(sample_prefix(tokens));
    store->flush();
    const auto again = store->find(tokens, 0);
    ASSERT_NE(again, nullptr) << "not written anew: " << victim;
    EXPECT_TRUE(equal(*again, *sample_prefix(tokens)));
  }
}

TEST_F(PrefixStoreTest, SwappedFilesAreNotBelieved) {
  const auto store = open();
  store->insert(sample_prefix(sample_tokens(300)));
  store->insert(sample_prefix(sample_tokens(300, 0, 1)));
  store->flush();
  const auto prefixes = files(".prefix");
  ASSERT_EQ(prefixes.size(), 2U);
  fs::copy_file(prefixes[0], prefixes[1], fs::copy_options::overwrite_existing);
  const bool first = store->find(sample_tokens(300), 0) != nullptr;
  const bool second = store->find(sample_tokens(300, 0, 1), 0) != nullptr;
  EXPECT_NE(first, second);
}

TEST_F(PrefixStoreTest, WhatADeadWriterLeftIsRemoved) {
  { const auto store = open(); }
  const fs::path folder = fs::directory_iterator(directory_)->path();
  std::ofstream(folder / "abc.prefix.tmp") << "half";
  std::ofstream(folder / "someone's notes.txt") << "not ours";
  const auto store = open();
  EXPECT_FALSE(fs::exists(folder / "abc.prefix.tmp"));
  EXPECT_TRUE(fs::exists(folder / "someone's notes.txt"));
}

TEST_F(PrefixStoreTest, OtherModelsHaveTheirOwn) {
  {
    const auto store = open();
    store->insert(sample_prefix(sample_tokens(300)));
  }
  EXPECT_EQ(open(1 << 30, 2)->find(sample_tokens(300), 0), nullptr);
}

TEST_F(PrefixStoreTest, ABudgetBoundsIt) {
  constexpr std::size_t kBudget = 40000;
  {
    const auto store = open(kBudget);
    for (std::int32_t branch = 0; branch < 30; ++branch) {
      store->insert(sample_prefix(sample_tokens(300, 0, branch)));
      store->flush();
      EXPECT_LE(store->bytes(), kBudget);
      EXPECT_EQ(store->bytes(), bytes_on_disk());
    }
    EXPECT_NE(store->find(sample_tokens(300, 0, 29), 0), nullptr);
    EXPECT_EQ(store->find(sample_tokens(300, 0, 0), 0), nullptr);
  }
  const auto smaller = open(kBudget / 4);  // a smaller budget holds at once
  EXPECT_LE(bytes_on_disk(), kBudget / 4);
}

TEST_F(PrefixStoreTest, UsedOnesStay) {
  const auto store = open(20000);  // about four prefixes
  store->insert(sample_prefix(sample_tokens(300)));
  store->flush();
  for (std::int32_t branch = 1; branch < 12; ++branch) {
    store->insert(sample_prefix(sample_tokens(300, 0, branch)));
    store->flush();
    ASSERT_NE(store->find(sample_tokens(300), 0), nullptr) << branch;
  }
}

}  // namespace
}  // namespace lily
