// MLX writes headers of any length, so a checkpoint's data may start at an odd byte: the model must answer the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "checkpoint/test_files.h"
#include "model/model.h"
#include "ops/cpu/cpu_ops.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

std::vector<float> logits_of(const fs::path& directory) {
  const Checkpoint checkpoint = Checkpoint::open(directory);
  const std::unique_ptr<Ops> ops = make_cpu_ops(checkpoint.config(), {.threads = 1});
  const Model model = load_model(checkpoint, *ops);
  const std::unique_ptr<SequenceState> state = ops->new_state(16);
  const std::array<std::int32_t, 5> tokens = {1, 2, 3, 500, 8000};
  const std::array<std::int64_t, 1> wanted = {4};
  const Segment segment{.state = state.get(), .first_row = 0, .rows = 5, .position = 0};
  const Tensor logits = forward(*ops, model, tokens, std::span(&segment, 1), wanted);
  std::vector<float> values(static_cast<std::size_t>(logits.cols));
  ops->read(logits, values);
  return values;
}

TEST(MisalignedModel, AnswersTheSame) {
  const fs::path demo = fs::path(LILY_SOURCE_DIR) / "models" / "demo";
  const std::vector<float> expected = logits_of(demo);
  EXPECT_NE(*std::max_element(expected.begin(), expected.end()), 0.0F);
  const test::TemporaryDirectory directory;
  for (const char* file : {"config.json", "model.safetensors.index.json"})
    fs::copy(demo / file, directory.path() / file);
  const auto [header, data] = test::split_safetensors(test::read_bytes(demo / "model.safetensors"));
  for (std::size_t shift = 1; shift < 4; ++shift) {
    const std::string text = header.dump();
    const std::size_t padding = (8 - text.size() % 8 + shift) % 8;
    fs::remove(directory.path() / "model.safetensors");
    test::write_bytes(directory.path() / "model.safetensors", test::safetensors(text, data, padding));
    EXPECT_EQ(logits_of(directory.path()), expected) << "data " << shift << " bytes off";
  }
}

}  // namespace
}  // namespace lily
