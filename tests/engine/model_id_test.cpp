// Which changes of a checkpoint make it another one, and which small ones do not.
#include "engine/model_id.h"

#include <numeric>
#include <set>

#include "demo_copy.h"

namespace lily {
namespace {

TEST(ModelId, PiecesAreSpreadFromTheFirstByteToTheLast) {
  std::vector<std::byte> bytes(std::size_t{1} << 20);
  for (const std::size_t size : {std::size_t{513}, std::size_t{1000}, std::size_t{65537}, bytes.size()}) {
    const std::span<const std::byte> tensor(bytes.data(), size);
    const auto pieces = pieces_of(tensor);
    ASSERT_EQ(pieces.size(), 8U);
    EXPECT_EQ(pieces.front().data(), tensor.data());
    EXPECT_EQ(pieces.back().data() + pieces.back().size(), tensor.data() + size);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      EXPECT_EQ(pieces[i].size(), 64U);
      const auto begin = static_cast<double>(pieces[i].data() - tensor.data());
      EXPECT_NEAR(begin, static_cast<double>(size - 64) * static_cast<double>(i) / 7, 1);
    }
  }
  for (const std::size_t size : {0U, 1U, 63U, 512U}) {  // all of it
    const auto pieces = pieces_of(std::span<const std::byte>(bytes.data(), size));
    ASSERT_EQ(pieces.size(), 1U);
    EXPECT_EQ(pieces.front().size(), size);
  }
}

TEST(ModelId, ChangesOfAnyTensorAreSeen) {
  const DemoCopy copy("lily_model_id_test");
  const auto id = [&] { return model_id(Checkpoint::open(copy.directory())); };
  std::set<std::uint64_t> ids{id()};
  EXPECT_EQ(id(), *ids.begin());
  EXPECT_EQ(model_id(Checkpoint::open(std::filesystem::path(LILY_SOURCE_DIR) / "models" / "demo")), *ids.begin());
  std::size_t changes = 1;
  for (const auto& [name, tensor] : copy.header().items()) {
    if (name == "__metadata__" || changes > 60) continue;
    const std::uint64_t size = copy.size(name);
    for (const std::uint64_t byte :
         std::set<std::uint64_t>{0, size <= 512 ? size / 2 : (size - 64) * 3 / 7, size - 1}) {
      copy.flip(name, byte);
      ids.insert(id());
      EXPECT_EQ(ids.size(), ++changes) << name << " " << byte;
      copy.flip(name, byte);
    }
  }
  EXPECT_EQ(id(), model_id(Checkpoint::open(std::filesystem::path(LILY_SOURCE_DIR) / "models" / "demo")));
  std::ofstream(copy.directory() / "config.json", std::ios::app) << "\n";
  ids.insert(id());
  EXPECT_EQ(ids.size(), changes + 1);
}

// What the header says: no verification.
TEST(ModelId, AChangeBetweenThePiecesIsNotSeen) {
  const DemoCopy copy("lily_model_id_test");
  const auto id = [&] { return model_id(Checkpoint::open(copy.directory())); };
  const std::uint64_t before = id();
  copy.flip("language_model.lm_head.weight", copy.size("language_model.lm_head.weight") / 14);
  EXPECT_EQ(id(), before);
}

}  // namespace
}  // namespace lily
