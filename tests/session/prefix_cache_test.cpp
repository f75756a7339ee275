// The prefix cache in memory: the longest prefix wins, equal beginnings share their blocks, a budget bounds it.
#include "session/prefix_cache.h"

#include <gtest/gtest.h>

#include "session/prefix_samples.h"

namespace lily {
namespace {

constexpr std::size_t kSnapshot = kSampleRecurrentBytes + kSampleVocab * sizeof(float);
constexpr std::size_t kBlock = kKvBlockTokens * kSampleKvBytes;

TEST(PrefixCache, TheLongestPrefixWins) {
  PrefixCache cache(1 << 20);
  EXPECT_EQ(cache.find(sample_tokens(10)).prefix, nullptr);
  cache.insert(sample_prefix(sample_tokens(10)));
  cache.insert(sample_prefix(sample_tokens(300)));
  cache.insert(sample_prefix(sample_tokens(400, 350, 1)));
  const auto match = cache.find(sample_tokens(380));
  ASSERT_NE(match.prefix, nullptr);
  EXPECT_EQ(match.prefix->length(), 300);
  EXPECT_EQ(match.common, 350);  // the other branch goes on in the same way for a while
  EXPECT_EQ(match.known_token, 100350);
  EXPECT_EQ(cache.find(sample_tokens(10)).prefix->length(), 10);
  EXPECT_EQ(cache.find(sample_tokens(9)).prefix, nullptr);  // state cannot be cut back
  EXPECT_EQ(cache.find(sample_tokens(9)).common, 9);
  EXPECT_EQ(cache.find(sample_tokens(50, 0, 3)).common, 0);
}

TEST(PrefixCache, OneThatGoesOnSaysWhereTheTokensDiffer) {
  PrefixCache cache(1 << 20);
  cache.insert(sample_prefix(sample_tokens(100)));
  cache.insert(sample_prefix(sample_tokens(120, 100, 1)));
  const auto match = cache.find(sample_tokens(120, 100, 2));
  EXPECT_EQ(match.common, 100);
  EXPECT_EQ(match.known_token, 100100);
}

TEST(PrefixCache, PrefixesThatBeginAlikeShareFullBlocks) {
  PrefixCache cache(1 << 20);
  cache.insert(sample_prefix(sample_tokens(512)));
  EXPECT_EQ(cache.bytes(), kSnapshot + 2 * kBlock);
  cache.insert(sample_prefix(sample_tokens(512)));  // known
  EXPECT_EQ(cache.bytes(), kSnapshot + 2 * kBlock);
  cache.insert(sample_prefix(sample_tokens(768)));  // one block more
  EXPECT_EQ(cache.bytes(), 2 * kSnapshot + 3 * kBlock);
  cache.insert(sample_prefix(sample_tokens(768, 300, 1)));  // the first block is shared, two are not
  EXPECT_EQ(cache.bytes(), 3 * kSnapshot + 5 * kBlock);
  EXPECT_EQ(cache.size(), 3U);
}

TEST(PrefixCache, TheLongestUnusedGoWhenTheBudgetIsReached) {
  PrefixCache cache(3 * (kSnapshot + kBlock));
  for (std::int32_t branch = 0; branch < 3; ++branch) cache.insert(sample_prefix(sample_tokens(256, 0, branch)));
  EXPECT_NE(cache.find(sample_tokens(256, 0, 0)).prefix, nullptr);  // used again
  cache.insert(sample_prefix(sample_tokens(256, 0, 3)));
  EXPECT_NE(cache.find(sample_tokens(256, 0, 0)).prefix, nullptr);
  EXPECT_EQ(cache.find(sample_tokens(256, 0, 1)).prefix, nullptr);
  EXPECT_NE(cache.find(sample_tokens(256, 0, 3)).prefix, nullptr);
  EXPECT_EQ(cache.size(), 3U);
  for (std::int32_t branch = 4; branch < 100; ++branch) {
    cache.insert(sample_prefix(sample_tokens(100 + 7 * branch, 0, branch)));
    EXPECT_LE(cache.bytes(), 3 * (kSnapshot + kBlock));
  }
}

TEST(PrefixCache, SharedBlocksStayUntilTheLastUserGoes) {
  PrefixCache cache(2 * kSnapshot + 4 * kBlock);
  cache.insert(sample_prefix(sample_tokens(512)));
  cache.insert(sample_prefix(sample_tokens(768)));
  cache.insert(sample_prefix(sample_tokens(256, 0, 1)));  // the shorter one goes, its blocks are still the longer one's
  const auto match = cache.find(sample_tokens(768));
  ASSERT_NE(match.prefix, nullptr);
  EXPECT_TRUE(equal(*match.prefix, *sample_prefix(sample_tokens(768))));
  EXPECT_EQ(cache.find(sample_tokens(512)).prefix, nullptr);
}

TEST(PrefixCache, WhatIsLargerThanTheBudgetIsNotKept) {
  PrefixCache none(0);
  none.insert(sample_prefix(sample_tokens(256)));
  EXPECT_EQ(none.bytes(), 0U);
  EXPECT_EQ(none.size(), 0U);
}

TEST(PrefixKey, DependsOnEveryTokenBeforeIt) {
  const auto keys = block_keys(sample_tokens(600));
  ASSERT_EQ(keys.size(), 3U);
  EXPECT_EQ(keys[0], prefix_key(sample_tokens(256)));
  EXPECT_EQ(keys[2], prefix_key(sample_tokens(600)));
  const auto other = block_keys(sample_tokens(600, 300, 1));
  EXPECT_EQ(other[0], keys[0]);
  EXPECT_NE(other[1], keys[1]);
  EXPECT_NE(other[2], keys[2]);
  EXPECT_EQ(keys[0].hex().size(), 32U);
}

}  // namespace
}  // namespace lily
