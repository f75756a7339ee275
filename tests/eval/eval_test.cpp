// Reference files that are damaged or of another model, and the arithmetic of the scores.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "eval/evaluation.h"
#include "support/error.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = LILY_SOURCE_DIR;

std::string golden_bytes() {
  std::ifstream file(kSource / "models" / "demo-goldens" / "goldens.safetensors", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// The message with which a file of these bytes is refused.
std::string refusal(const std::string& bytes) {
  const fs::path path = fs::path(testing::TempDir()) / "damaged_goldens.safetensors";
  std::ofstream(path, std::ios::binary) << bytes;
  std::string message = "accepted";
  try {
    read_goldens(path, read_config(kSource / "models" / "demo"));
  } catch (const Error& error) {
    message = error.what();
  }
  fs::remove(path);
  return message;
}

std::string replaced(std::string bytes, const std::string& from, const std::string& to) {
  const std::size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return bytes.replace(at, from.size(), to);
}

/// The four bytes of entry `index` of a tensor, to be changed.
void set_entry(std::string& bytes, const std::string& tensor, std::size_t index, std::int32_t value) {
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  const std::size_t entry = bytes.find("\"" + tensor + "\":{");
  const std::string key = "\"data_offsets\":[";
  const std::size_t begin = std::stoul(bytes.substr(bytes.find(key, entry) + key.size(), 20));
  std::memcpy(bytes.data() + 8 + header + begin + 4 * index, &value, 4);
}

TEST(Goldens, AreRefusedWhenDamaged) {
  const std::string good = golden_bytes();
  EXPECT_EQ(refusal(good), "accepted");
  EXPECT_NE(refusal(good.substr(0, good.size() - 1)), "accepted");
  EXPECT_NE(refusal("not a file"), "accepted");
  EXPECT_NE(refusal(replaced(good, "\"logsumexp\"", "\"logsumexq\"")).find("there is no tensor 'logsumexp'"),
            std::string::npos);

  std::string bytes = good;
  set_entry(bytes, "shape", 1, 2048);
  EXPECT_NE(refusal(bytes).find("made for a model of"), std::string::npos);
  for (const std::int32_t id : {-1, 8192}) {
    bytes = good;
    set_entry(bytes, "tokens", 3, id);
    EXPECT_NE(refusal(bytes).find("'tokens' has id"), std::string::npos);
  }
  for (const std::int32_t end : {-5, 0, 1, 1 << 30}) {
    bytes = good;
    set_entry(bytes, "ends", 0, end);
    EXPECT_NE(refusal(bytes).find("'ends' has the end"), std::string::npos);
  }
}

TEST(Scores, FollowTheirDefinitions) {
  const RunScore run{.positions = 4, .agreements = 3, .loss = 4 * std::log(6.0), .reference_loss = 4 * std::log(5.0)};
  EXPECT_DOUBLE_EQ(run.top1_agreement(), 0.75);
  EXPECT_NEAR(run.perplexity(), 6.0, 1e-12);
  EXPECT_NEAR(run.perplexity_ratio(), 1.2, 1e-12);
  const TextScore text{.tokens = 8, .bytes = 16, .loss = 8 * std::log(4.0)};
  EXPECT_NEAR(text.perplexity(), 4.0, 1e-12);
  EXPECT_NEAR(text.bits_per_byte(), 1.0, 1e-12);
}

}  // namespace
}  // namespace lily
