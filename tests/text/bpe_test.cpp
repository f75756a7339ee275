#include "text/bpe.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <numeric>
#include <random>
#include <string>

#include "text/naive_bpe.h"

namespace lily {
namespace {

TEST(Bpe, EqualsItsDefinition) {
  std::array<std::int32_t, 256> bytes;
  std::iota(bytes.begin(), bytes.end(), 0);
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    // Merges of random pieces over three letters; equal results in several ways, and the same pair twice.
    std::vector<std::string> pieces = {"a", "b", "c"};
    std::map<std::string, std::int32_t> ids = {{"a", 'a'}, {"b", 'b'}, {"c", 'c'}};
    std::vector<Merge> merges;
    for (int i = 0; i < 40; ++i) {
      const std::string left = pieces[random() % pieces.size()];
      const std::string right = pieces[random() % pieces.size()];
      const auto [found, fresh] = ids.emplace(left + right, static_cast<std::int32_t>(256 + ids.size()));
      if (fresh) pieces.push_back(left + right);
      merges.push_back({ids[left], ids[right], found->second});
    }
    std::shuffle(merges.begin(), merges.end(), random);
    const Bpe bpe(bytes, merges);
    for (const std::size_t length : {0, 1, 2, 3, 5, 20, 47, 48, 49, 50, 120}) {
      std::string word;
      while (word.size() < length) word += static_cast<char>('a' + random() % 3);
      std::vector<std::int32_t> found = {-7};  // what is there stays
      bpe.encode(word, found);
      ASSERT_EQ(found.front(), -7);
      found.erase(found.begin());
      ASSERT_EQ(found, naive_bpe(merges, word)) << word;
    }
  }
}

TEST(Bpe, WithoutMergesIsBytes) {
  std::array<std::int32_t, 256> bytes;
  std::iota(bytes.begin(), bytes.end(), 1000);
  const Bpe bpe(bytes, {});
  std::vector<std::int32_t> ids;
  bpe.encode(std::string_view("\0\xFF", 2), ids);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{1000, 1255}));
}

}  // namespace
}  // namespace lily
